"""Scripts that answer one question each: `python -m analyses.NAME MODEL --out DIR`.

Importing this package fails at once, with the path at fault, when the name `models` belongs to another project.
"""

from __future__ import annotations

from interp._own_models import require_own_models

require_own_models()
