"""Attention without a softmax, on tensors: mixers that are linear in their values and carry a state of fixed size.

Every rule is a matrix M, zero above the diagonal, with y = M v; and a state S, [d_key, d_value] per head, with y_t = q_t S_t:

    gated    S_t = a_t S_{t-1} + beta_t k_t v_t^T                            retention, lightning, Mamba-2
    delta    S_t = (I - beta_t k_t k_t^T) a_t S_{t-1} + beta_t k_t v_t^T     gated delta, Kimi delta
    kernel   as gated with a = beta = 1, divided by q_t times the sum of k   Katharopoulos' linear attention

Each file has the same functions with the same arguments: `recurrent` (one token after the other, to be read), `chunked` (fast,
linear in the length), `quadratic` (through M), `implicit_matrix` (M itself) `states` (S after every token), and
`read` (q_t S_t for given states).
"""
