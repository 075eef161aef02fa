"""Attention: what a query may see (`masks`), what a call knows (`context`), and the hookable module (`softmax`)."""
