/* The backend interface: the arithmetic of attention models behind one small table.
 *
 * A backend owns memory (buffers, bound weights) and computes on it; everything else in attnd only names that memory.
 * Ops take a buffer and an offset (atn_mat), so that a backend whose memory is not the host's joins behind this table.
 * An op that a backend leaves NULL, or that supports() declines, is done by `naive`, the scalar truth.
 *
 *     atn_backend *be;
 *     atn_backend_open("auto", &(atn_backend_params){.n_threads = 2}, &be, &err);
 *     atn_attention(be, &desc);          ... more ops ...
 *     atn_backend_wait(be);              results are readable after this
 *     atn_backend_close(be);
 *
 * Thread: a backend is used by one thread at a time (the engine thread); it spreads work over its own pool.
 * Numerics: `naive` obeys the rules of docs/numerics.md: a row's result never depends on how many rows there are.
 */
#ifndef ATTND_BACKEND_H
#define ATTND_BACKEND_H

#include <attnd/status.h>
#include <attnd/tensor.h>

typedef struct atn_backend atn_backend; /* opaque; closed by its opener */
typedef struct atn_buffer atn_buffer;   /* opaque; memory of one backend */
typedef struct atn_weight atn_weight;   /* opaque; a matrix [n_out, n_in] in the backend's own layout */

/* float32 rows inside a buffer: row r starts at byte off + r * stride * 4 and has cols floats. */
typedef struct atn_mat {
    atn_buffer *buf;
    size_t off;      /* bytes, a multiple of 4 */
    uint32_t cols;   /* floats used of each row */
    uint32_t stride; /* floats from row to row, >= cols */
} atn_mat;

typedef enum atn_op {
    ATN_OP_EMBED,
    ATN_OP_MATMUL,
    ATN_OP_NORM,
    ATN_OP_ROPE,
    ATN_OP_KV_WRITE,
    ATN_OP_ATTENTION,
    ATN_OP_ACTIVATE,
    ATN_OP_ADD,
    ATN_OP_SOFTCAP,
    ATN_OP_GATHER,
} atn_op;

typedef struct atn_backend_caps {
    const char *name;     /* "naive" */
    const char *numerics; /* id of the arithmetic definition and its version, "naive-1" */
    const char *detail;   /* library, kernel and threads in words, for /info */
    bool batch_invariant; /* bits never depend on neighbours, chunking or thread count */
    bool attention_probe; /* fills atn_attn.probe exactly */
    uint32_t n_threads;
} atn_backend_caps;

typedef struct atn_backend_params {
    uint32_t n_threads; /* 0: as many as the cgroup quota and the CPU affinity allow */
} atn_backend_params;

/* ---- life ---- */

/* name: "naive", "simd", "openblas", or "auto" (the best one that passes its self-check).
 * Errors: ATN_INVALID (unknown name; the text lists the known ones), ATN_UNSUPPORTED (it declined itself, and why). */
atn_status atn_backend_open(const char *name, const atn_backend_params *params, atn_backend **out,
                            atn_err *err) ATN_MUST_CHECK;
void atn_backend_close(atn_backend *be); /* NULL is fine; buffers and weights must be freed before */
void atn_backend_get_caps(const atn_backend *be, atn_backend_caps *out);
/* Whether the backend itself does op on type t (the weight's, the KV cache's, else F32); what it declines, naive does. */
bool atn_backend_supports(const atn_backend *be, atn_op op, atn_dtype t);
/* The i-th compiled-in backend's name, NULL past the end. */
const char *atn_backend_list(size_t i);
/* Blocks until every op called so far is done. Gives the first failure of an op since the last wait, and forgets it:
 * ATN_UNSUPPORTED (a head wider than ATN_HEAD_DIM_MAX), ATN_NOMEM (only a probed attention allocates). */
atn_status atn_backend_wait(atn_backend *be, atn_err *err);

/* ---- memory ---- */

/* bytes of zeroed memory, 64-byte aligned. prefault touches every page now, so that no step pays for it later. */
atn_status atn_buffer_new(atn_backend *be, size_t bytes, bool prefault, atn_buffer **out, atn_err *err) ATN_MUST_CHECK;
void atn_buffer_free(atn_buffer *buf); /* NULL is fine */
void atn_buffer_write(atn_buffer *buf, size_t off, const void *src, size_t n);
void atn_buffer_read(const atn_buffer *buf, size_t off, void *dst, size_t n);
void atn_buffer_copy(atn_buffer *dst, size_t dst_off, const atn_buffer *src, size_t src_off, size_t n);
/* The memory itself where the host can address it, else NULL. */
void *atn_buffer_host(atn_buffer *buf);

/* Binds a matrix: rows = n_out rows of n_in weights of type t, packed as in GGUF. The bytes at `rows` are copied or
 * repacked and may be freed on return. Errors: ATN_UNSUPPORTED, ATN_NOMEM. */
atn_status atn_weight_bind(atn_backend *be, atn_dtype t, const void *rows, uint32_t n_in, uint32_t n_out,
                           atn_weight **out, atn_err *err) ATN_MUST_CHECK;
void atn_weight_free(atn_weight *w);
size_t atn_weight_bytes(const atn_weight *w);

/* ---- ops: n is always the number of rows ---- */

/* dst[n, n_in] = scale * row ids[i] of w; 0 <= ids[i] < n_out is the caller's duty. */
void atn_embed(atn_backend *be, atn_mat dst, const atn_weight *w, const int32_t *ids, uint32_t n, float scale);

typedef struct atn_matmul_args {
    atn_mat dst; /* [n, n_out] */
    atn_mat x;   /* [n, n_in] */
    const atn_weight *w;
    const atn_mat *bias; /* [1, n_out] or NULL */
    uint32_t n;
} atn_matmul_args;
/* dst = x wᵀ + bias. dst must not overlap x. */
void atn_matmul(atn_backend *be, const atn_matmul_args *a);

typedef enum atn_norm_kind { ATN_NORM_RMS, ATN_NORM_LAYER } atn_norm_kind;
typedef struct atn_norm_args {
    atn_mat dst, x;        /* [n, cols]; may be the same */
    const atn_mat *weight; /* [1, width] */
    const atn_mat *bias;   /* [1, width] or NULL */
    atn_norm_kind kind;
    float eps;
    uint32_t width; /* each run of width columns is normed by itself (a head); cols for whole rows */
    uint32_t n;
} atn_norm_args;
/* RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467) or LayerNorm (Ba et al. 2016, arXiv:1607.06450). */
void atn_norm(atn_backend *be, const atn_norm_args *a);

typedef enum atn_rope_style {
    ATN_ROPE_ADJACENT,
    ATN_ROPE_HALVES
} atn_rope_style; /* pairs (2i,2i+1) or (i,i+n_rot/2) */
typedef struct atn_rope_args {
    atn_mat x;            /* [n, n_head * head_dim], rotated in place */
    const atn_mat *table; /* [n_positions, n_rot]: cos and sin of pair i at columns 2i and 2i+1 */
    const int32_t *pos;   /* [n] row of the table for each row of x */
    atn_rope_style style;
    uint32_t head_dim, n_rot; /* the first n_rot of each head's head_dim values are rotated */
    uint32_t n;
} atn_rope_args;
/* Rotary position embedding (Su et al. 2021, arXiv:2104.09864). */
void atn_rope(atn_backend *be, const atn_rope_args *a);

typedef enum atn_act_kind { ATN_ACT_SILU, ATN_ACT_GELU_TANH } atn_act_kind;
/* dst = act(a) * b, or act(a) when b is NULL; all [n, cols]; dst may be a or b. GELU is the tanh form, computed, not tabulated
 * (Hendrycks & Gimpel 2016, arXiv:1606.08415). */
void atn_activate(atn_backend *be, atn_act_kind kind, atn_mat dst, atn_mat a, const atn_mat *b, uint32_t n);

void atn_add(atn_backend *be, atn_mat dst, atn_mat x, uint32_t n);   /* dst += x; [n, cols] */
void atn_softcap(atn_backend *be, atn_mat x, float cap, uint32_t n); /* x = cap * tanh(x / cap) */
void atn_gather(atn_backend *be, atn_mat dst, atn_mat x, const int32_t *rows,
                uint32_t n); /* dst row i = x row rows[i] */

/* ---- attention ---- */

#define ATN_HEAD_DIM_MAX 1024 /* wider heads are refused: atn_backend_wait then says so */

/* Where keys and values lie: one addressing for paged caches and for dense arrays.
 * K(pos, h) starts at byte  pages[pos / page_tokens] * page_stride + k_off + h * head_stride + (pos % page_tokens) * row_stride
 * and V likewise with v_off. A dense [n_keys, n_head_kv, d] array is one page: page_tokens >= n_keys, pages = {0}. */
typedef struct atn_kv_layout {
    atn_buffer *k_buf, *v_buf; /* may be the same */
    size_t page_stride;        /* bytes */
    size_t k_off, v_off;       /* bytes from a page's start: selects the layer */
    size_t head_stride;        /* bytes from KV head to KV head */
    size_t row_stride;         /* bytes from position to position */
    uint32_t page_tokens;      /* positions a page */
    atn_dtype type;            /* F32 or F16: K and V are rounded to it when written, and read only in that form */
} atn_kv_layout;

/* One sequence's share of a call: n_q consecutive query rows against its own keys. */
typedef struct atn_attn_seq {
    const int32_t
        *pages;     /* [ceil(n_keys / page_tokens)] page numbers; entries wholly outside every row's sight may be -1 */
    uint32_t q_row; /* first row of q and out */
    uint32_t n_q;
    uint32_t q_pos;              /* logical position of the first query row (causal and window compare positions) */
    uint32_t n_keys;             /* keys 0 .. n_keys-1 exist; queries and keys may differ in number */
    const uint8_t *key_mask;     /* [n_keys] 0 hides the key from every query (padding), or NULL */
    const float *key_log_factor; /* [n_keys] added to the scaled scores of that key, -INFINITY removes it, or NULL */
} atn_attn_seq;

/* Receives a softmax row: weights[n_keys] of one query row, one head; 0 where masked. Called on the calling thread of
 * atn_attention after the row is known, rows ascending, heads ascending within a row. */
typedef void (*atn_attn_probe_fn)(void *arg, uint32_t q_row, uint32_t head, const float *weights, uint32_t n_keys);

typedef struct atn_attn_args {
    atn_mat q;   /* [rows, n_head * head_dim] */
    atn_mat out; /* [rows, n_head * head_dim_v] */
    atn_kv_layout kv;
    const atn_attn_seq *seqs;
    uint32_t n_seqs;
    uint32_t n_head, n_head_kv; /* n_head is a multiple of n_head_kv: head h reads KV head h / (n_head / n_head_kv) */
    uint32_t head_dim, head_dim_v;
    /* A score is softcap(q.k * scale * head_scale) + bias + key_log_factor. */
    float scale;       /* multiplies q.k; usually 1/sqrt(head_dim) (Vaswani et al. 2017, arXiv:1706.03762, 3.2.1) */
    float softcap;     /* cap * tanh(score / cap) after scaling; 0: off */
    uint32_t window;   /* a query at p sees keys p-window+1 .. p; 0: no window */
    bool causal;       /* a query at p sees keys <= p */
    const float *bias; /* additive [n_head, rows, bias_stride] per head, query row and key, or NULL; rows is the
                               * largest q_row + n_q of the call; -INFINITY hides the key from that row and head */
    uint32_t bias_stride;
    const float *sink;       /* [n_head] logit of a key without value that only takes mass, or NULL */
    const float *head_scale; /* [n_head] multiplies the scaled scores (their temperature), or NULL */
    const float *head_gate;  /* [n_head] multiplies the head's output; 0 ablates it, or NULL */
    atn_attn_probe_fn probe; /* or NULL: then nothing is paid for it */
    void *probe_arg;
} atn_attn_args;
/* out = softmax(scale q kᵀ + masks) v, row by row with an online softmax (Milakov & Gimelshein 2018, arXiv:1805.02867) over
 * spans of 512 keys in blocks of 32; nothing n x n is stored. A masked key is skipped, whatever its K and V hold.
 * A row that sees nothing gives zeros. A key whose score is -infinity is as good as masked; one whose score is NaN or
 * +infinity makes that row and head NaN, and no other. */
void atn_attention(atn_backend *be, const atn_attn_args *a);

typedef struct atn_kv_write_args {
    atn_mat k, v; /* [n, n_head_kv * head_dim], [n, n_head_kv * head_dim_v] */
    atn_kv_layout kv;
    const int32_t *page; /* [n] page number of each row */
    const int32_t *slot; /* [n] position inside the page */
    uint32_t n_head_kv, head_dim, head_dim_v;
    uint32_t n;
} atn_kv_write_args;
/* Rounds rows of K and V to the KV type and stores them. */
void atn_kv_write(atn_backend *be, const atn_kv_write_args *a);

/* Sinusoidal positions (Vaswani et al. 2017, 3.5): table[max_len, d_model], sin at even and cos at odd columns. */
void atn_sinusoidal_table(float *table, uint32_t max_len, uint32_t d_model);

#endif
