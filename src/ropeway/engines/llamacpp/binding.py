"""llama.cpp's own C functions out of the `xllamacpp` wheel, through cffi in ABI mode: no compiler, nothing modified.

Struct layouts change from build to build, so this file names the builds it knows and `load` refuses another one by
name, after a self-test of the structs' defaults. Knows nothing of stages.
"""

from __future__ import annotations

import functools
import glob
import importlib.metadata
import importlib.util
import os
from typing import Any

import cffi

from ropeway.engines.base import EngineError

KNOWN_BUILDS = (11549,)
"""Builds of llama.cpp whose struct layouts `_CDEF` describes."""

LAYER_INPUT_SETTER = "_Z30llama_set_embeddings_layer_inpP13llama_contextjb"
LAYER_INPUT_GETTER = "_Z30llama_get_embeddings_layer_inpP13llama_contextj"
"""Declared in llama.cpp's own headers with C++ linkage, hence the mangled names."""

_LOG_ERROR = 4

_CDEF = (
    """
typedef int32_t llama_pos;
typedef int32_t llama_token;
typedef int32_t llama_seq_id;
typedef ... llama_model;
typedef ... llama_vocab;
typedef ... llama_context;
typedef struct llama_memory_i * llama_memory_t;
typedef void (*ggml_log_callback)(int level, const char * text, void * user_data);
typedef bool (*ggml_abort_callback)(void * data);
typedef bool (*ggml_backend_sched_eval_callback)(void * tensor, bool ask, void * user_data);
typedef bool (*llama_progress_callback)(float progress, void * user_data);

struct llama_model_params {
    void * devices;
    const void * tensor_buft_overrides;
    int32_t n_gpu_layers;
    int split_mode;
    int load_mode;
    int lazy_mode;
    int32_t main_gpu;
    const float * tensor_split;
    llama_progress_callback progress_callback;
    void * progress_callback_user_data;
    const void * kv_overrides;
    bool vocab_only;
    bool check_tensors;
    bool use_extra_bufts;
    bool no_host;
    bool no_alloc;
    bool load_mtp;
};

struct llama_context_params {
    uint32_t n_ctx;
    uint32_t n_batch;
    uint32_t n_ubatch;
    uint32_t n_seq_max;
    uint32_t n_rs_seq;
    uint32_t n_outputs_max;
    uint32_t n_outputs_max_per_seq;
    int32_t n_threads;
    int32_t n_threads_batch;
    int ctx_type;
    int rope_scaling_type;
    int pooling_type;
    int attention_type;
    int flash_attn_type;
    float rope_freq_base;
    float rope_freq_scale;
    float yarn_ext_factor;
    float yarn_attn_factor;
    float yarn_beta_fast;
    float yarn_beta_slow;
    uint32_t yarn_orig_ctx;
    float defrag_thold;
    ggml_backend_sched_eval_callback cb_eval;
    void * cb_eval_user_data;
    int type_k;
    int type_v;
    size_t moe_cache_size;
    ggml_abort_callback abort_callback;
    void * abort_callback_data;
    bool embeddings;
    bool offload_kqv;
    bool no_perf;
    bool op_offload;
    bool swa_full;
    bool kv_unified;
    void * samplers;
    size_t n_samplers;
    void * ctx_other;
};

typedef struct llama_batch {
    int32_t n_tokens;
    llama_token * token;
    float * embd;
    llama_pos * pos;
    int32_t * n_seq_id;
    llama_seq_id ** seq_id;
    int8_t * logits;
} llama_batch;

const char * llama_version(void);
void llama_backend_init(void);
void llama_log_set(ggml_log_callback log_callback, void * user_data);
bool llama_supports_gpu_offload(void);
struct llama_model_params llama_model_default_params(void);
struct llama_context_params llama_context_default_params(void);
llama_model * llama_model_load_from_file(const char * path, struct llama_model_params params);
void llama_model_free(llama_model * model);
llama_context * llama_init_from_model(llama_model * model, struct llama_context_params params);
void llama_free(llama_context * ctx);
uint64_t llama_model_size(const llama_model * model);
int32_t llama_model_n_embd(const llama_model * model);
int32_t llama_model_n_layer(const llama_model * model);
const llama_vocab * llama_model_get_vocab(const llama_model * model);
int32_t llama_vocab_n_tokens(const llama_vocab * vocab);
uint32_t llama_n_ctx_seq(const llama_context * ctx);
int32_t llama_decode(llama_context * ctx, llama_batch batch);
void llama_set_n_threads(llama_context * ctx, int32_t n_threads, int32_t n_threads_batch);
void llama_synchronize(llama_context * ctx);
float * llama_get_logits(llama_context * ctx);
float * llama_get_logits_ith(llama_context * ctx, int32_t i);
llama_memory_t llama_get_memory(const llama_context * ctx);
bool llama_memory_seq_rm(llama_memory_t mem, llama_seq_id seq, llama_pos p0, llama_pos p1);
llama_pos llama_memory_seq_pos_max(llama_memory_t mem, llama_seq_id seq);
size_t llama_state_seq_get_size(llama_context * ctx, llama_seq_id seq);
size_t llama_state_seq_get_data(llama_context * ctx, uint8_t * dst, size_t size, llama_seq_id seq);
size_t llama_state_seq_set_data(llama_context * ctx, const uint8_t * src, size_t size, llama_seq_id seq);
int32_t llama_tokenize(const llama_vocab * vocab, const char * text, int32_t text_len, llama_token * tokens,
                       int32_t n_tokens_max, bool add_special, bool parse_special);
int32_t llama_token_to_piece(const llama_vocab * vocab, llama_token token, char * buf, int32_t length,
                             int32_t lstrip, bool special);
bool llama_vocab_is_eog(const llama_vocab * vocab, llama_token token);
llama_token llama_vocab_bos(const llama_vocab * vocab);
llama_token llama_vocab_eos(const llama_vocab * vocab);
bool llama_vocab_get_add_bos(const llama_vocab * vocab);
const char * ggml_get_name(const void * tensor);
void ggml_backend_tensor_get(const void * tensor, void * data, size_t offset, size_t size);
size_t ggml_backend_dev_count(void);
void * ggml_backend_dev_get(size_t index);
const char * ggml_backend_dev_name(void * device);
int ggml_backend_dev_type(void * device);
"""
    f"void {LAYER_INPUT_SETTER}(llama_context * ctx, uint32_t layer, bool value);\n"
    f"float * {LAYER_INPUT_GETTER}(llama_context * ctx, uint32_t layer);\n"
)


class LlamaCpp:
    """The library: `ffi`, `lib`, and its build number. Made once a process by `load`."""

    def __init__(self, ffi: Any, lib: Any, build: int) -> None:
        self.ffi = ffi
        self.lib = lib
        self.build = build
        self._errors: list[str] = []
        self._log_callback = ffi.callback("void(int, const char *, void *)", self._log)
        lib.llama_log_set(self._log_callback, ffi.NULL)

    def _log(self, level: int, text: Any, _: Any) -> None:
        """Keep the first few error lines for an exception's text; llama.cpp's other chatter is dropped."""
        if level == _LOG_ERROR and len(self._errors) < 4:
            self._errors.append(self.ffi.string(text).decode(errors="replace").strip())

    def take_error(self) -> str:
        """What llama.cpp said went wrong since the last call, the first cause first."""
        said, self._errors = "; ".join(self._errors), []
        return said or "no reason given"

    @property
    def release(self) -> str:
        """What a stage reports as its engine's version."""
        return f"llama.cpp b{self.build}"


def _module_path() -> str:
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or not spec.submodule_search_locations:
        raise EngineError("llama.cpp is not installed: pip install 'xllamacpp==2026.10.11549'")
    folder = spec.submodule_search_locations[0]
    found = sorted(
        glob.glob(os.path.join(folder, "xllamacpp*.so")) + glob.glob(os.path.join(folder, "xllamacpp*.dylib"))
    )
    if not found:
        raise EngineError(f"no llama.cpp library in {folder}: reinstall xllamacpp")
    return found[0]


def _build_number(wheel_version: str) -> int:
    """The wheel's version ends in llama.cpp's build number; the library's own build functions say 0 in it."""
    last = wheel_version.split("+")[0].rsplit(".", 1)[-1]
    return int(last) if last.isdigit() else 0


@functools.cache
def load() -> LlamaCpp:
    """Open the library, judge its build and struct layouts, and start its backends. Raises EngineError."""
    ffi = cffi.FFI()
    ffi.cdef(_CDEF)
    path = _module_path()
    build = _build_number(importlib.metadata.version("xllamacpp"))
    try:
        lib = ffi.dlopen(path)
    except (OSError, AttributeError) as error:
        raise EngineError(f"{path} does not give llama.cpp's functions: {error}") from error
    if build not in KNOWN_BUILDS:
        known = ", ".join(f"b{b}" for b in KNOWN_BUILDS)
        raise EngineError(
            f"llama.cpp here is build b{build}; this binding knows {known}: pip install 'xllamacpp==2026.10.11549'"
        )
    _self_test(ffi, lib, build)
    llama = LlamaCpp(ffi, lib, build)
    lib.llama_backend_init()
    return llama


def _self_test(ffi: Any, lib: Any, build: int) -> None:
    """Compare the structs' defaults with the ones known for these builds: a moved field shows at once."""
    model = lib.llama_model_default_params()
    context = lib.llama_context_default_params()
    seen = {
        "n_gpu_layers": model.n_gpu_layers,
        "vocab_only": model.vocab_only,
        "use_extra_bufts": model.use_extra_bufts,
        "n_ctx": context.n_ctx,
        "n_batch": context.n_batch,
        "n_ubatch": context.n_ubatch,
        "n_seq_max": context.n_seq_max,
        "flash_attn_type": context.flash_attn_type,
        "yarn_beta_fast": context.yarn_beta_fast,
        "type_k": context.type_k,
        "type_v": context.type_v,
        "offload_kqv": context.offload_kqv,
        "kv_unified": context.kv_unified,
        "ctx_other": context.ctx_other == ffi.NULL,
    }
    wrong = {name: value for name, value in seen.items() if value != _DEFAULTS[name]}
    if wrong:
        raise EngineError(f"llama.cpp b{build}: struct defaults are not the known ones: {wrong}")


_DEFAULTS = {
    "n_gpu_layers": -1,
    "vocab_only": False,
    "use_extra_bufts": True,
    "n_ctx": 512,
    "n_batch": 2048,
    "n_ubatch": 512,
    "n_seq_max": 1,
    "flash_attn_type": -1,
    "yarn_beta_fast": -1.0,
    "type_k": 1,
    "type_v": 1,
    "offload_kqv": True,
    "kv_unified": False,
    "ctx_other": True,
}
