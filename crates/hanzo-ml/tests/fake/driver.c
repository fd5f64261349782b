// A driver and a run-time compiler under the names of CUDA and of HIP, for the tests of `gpu::driver`: memory is the
// host's, "compiling" keeps the text, and every call is written to the file that FAKE_LOG names when this is compiled.
// What a real driver would forgive is an error here: a context that is not current, memory that is not there, a handle
// that was given back. Handles are numbers that occur once, so each use of one after its end is seen; `release` says what
// was left behind.

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define BOTH(cu, hip, params, args) \
    static int fake_##cu params;    \
    EXPORT int cu params { return fake_##cu args; } \
    EXPORT int hip params { return fake_##cu args; } \
    static int fake_##cu params

enum kind { MODULE = 1, FUNCTION, EVENT, GRAPH, EXEC, PROGRAM };
static __thread void *current;
static int n_inits, context_cell, stream_cell, n_live, is_capturing;
static struct { uint64_t address; size_t bytes; } live[256];
// A handle is 100 times its place, plus its kind. A function's owner is its module.
static struct { enum kind kind; char *text; uint64_t owner; int is_alive, is_recorded; } things[1024];
static int n_things;

static void note(const char *format, ...) {
    FILE *f = fopen(FAKE_LOG, "a");
    va_list list;
    va_start(list, format);
    if (f) { vfprintf(f, format, list); fputc('\n', f); fclose(f); }
    va_end(list);
}
static void *thing(enum kind kind, const char *text, uint64_t owner) {
    things[n_things].kind = kind;
    things[n_things].text = strdup(text);
    things[n_things].owner = owner;
    things[n_things].is_alive = 1;
    return (void *)(uint64_t)(100 * ++n_things + kind);
}
// The place of a live handle of a kind, or -1. A function lives as long as its module.
static int place(enum kind kind, const void *handle) {
    uint64_t number = (uint64_t)handle, i = number / 100 - 1;
    int is_good = number % 100 == kind && i < (uint64_t)n_things && things[i].kind == kind && things[i].is_alive;
    if (is_good && kind == FUNCTION) is_good = place(MODULE, (void *)things[i].owner) >= 0;
    if (!is_good) note("no such thing of kind %d", kind);
    return is_good ? (int)i : -1;
}
static int end(enum kind kind, void *handle) {
    int i = place(kind, handle);
    if (i >= 0) things[i].is_alive = 0;
    return i < 0 ? 400 : 0;
}
// 3: not initialised; 201: no context.
static int ready(void) { return !n_inits ? 3 : current != &context_cell ? 201 : 0; }
static int inside(uint64_t address, size_t bytes) {
    for (int i = 0; i < n_live; i++)
        if (address >= live[i].address && address + bytes <= live[i].address + live[i].bytes) return 1;
    note("outside %zu bytes", bytes);
    return 0;
}

BOTH(cuInit, hipInit, (unsigned flags), (flags)) { n_inits++; note("init %u", flags); return flags; }
BOTH(cuDriverGetVersion, hipDriverGetVersion, (int *v), (v)) { *v = 13000; return 0; }
BOTH(cuDeviceGetCount, hipGetDeviceCount, (int *n), (n)) { *n = 2; return n_inits ? 0 : 3; }
BOTH(cuDeviceGet, hipDeviceGet, (int *d, int i), (d, i)) { *d = 10 + i; return i < 2 ? 0 : 101; }
BOTH(cuDeviceGetName, hipDeviceGetName, (char *s, int n, int d), (s, n, d)) { snprintf(s, n, "Fake %d", d); return 0; }
BOTH(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t *n, int d), (n, d)) { *n = (size_t)d << 30; return n_inits ? 0 : 3; }
BOTH(cuDeviceGetAttribute, hipDeviceGetAttribute, (int *v, int a, int d), (v, a, d)) {
    (void)d;
    // The numbers of both enumerations, which do not overlap where it matters here.
    switch (a) {
    case 16: case 63: *v = 7; break;
    case 8: case 74: *v = 49152; break;
    case 97: *v = 232448; break;
    case 10: case 87: *v = 32; break;
    case 5: case 29: *v = 2147483647; break;
    case 6: case 7: case 30: case 31: *v = 65535; break;
    case 75: case 23: *v = 9; break;
    case 76: case 61: *v = 0; break;
    default: return 1;
    }
    return 0;
}
BOTH(cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain, (void **c, int d), (c, d)) {
    note("retain %d", d); *c = &context_cell; return 0;
}
BOTH(cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease, (int d), (d)) {
    int n = 0;
    for (int i = 0; i < n_things; i++) n += things[i].is_alive && things[i].kind != FUNCTION;
    note("release %d with %d pieces of memory and %d things left", d, n_live, n);
    return 0;
}
BOTH(cuCtxSetCurrent, hipCtxSetCurrent, (void *c), (c)) { current = c; return 0; }
BOTH(cuMemGetInfo_v2, hipMemGetInfo, (size_t *f, size_t *t), (f, t)) { *f = 1 << 20; *t = 1 << 21; return ready(); }
BOTH(cuMemAlloc_v2, hipMalloc, (uint64_t *p, size_t n), (p, n)) {
    if (ready()) return ready();
    if (n > 1 << 20) return 2;
    *p = (uint64_t)calloc(1, n);
    live[n_live].address = *p; live[n_live++].bytes = n;
    note("alloc %zu", n);
    return 0;
}
BOTH(cuMemFree_v2, hipFree, (uint64_t p), (p)) {
    for (int i = 0; i < n_live; i++)
        if (live[i].address == p) {
            note("free %zu", live[i].bytes);
            live[i] = live[--n_live];
            free((void *)p);
            return 0;
        }
    note("free of nothing");
    return 1;
}
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (uint64_t d, const void *s, size_t n, void *q), (d, s, n, q)) {
    if (ready() || q != &stream_cell || !inside(d, n)) return 1;
    memcpy((void *)d, s, n);
    return 0;
}
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *d, uint64_t s, size_t n, void *q), (d, s, n, q)) {
    if (ready() || q != &stream_cell || !inside(s, n)) return 1;
    memcpy(d, (void *)s, n);
    return 0;
}
BOTH(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, (uint64_t d, uint64_t s, size_t n, void *q), (d, s, n, q)) {
    if (ready() || q != &stream_cell || !inside(d, n) || !inside(s, n)) return 1;
    memcpy((void *)d, (void *)s, n);
    return 0;
}
BOTH(cuMemsetD8Async, hipMemsetD8Async, (uint64_t d, unsigned char v, size_t n, void *q), (d, v, n, q)) {
    if (ready() || q != &stream_cell || !inside(d, n)) return 1;
    memset((void *)d, v, n);
    return 0;
}
BOTH(cuStreamCreate, hipStreamCreateWithFlags, (void **q, unsigned f), (q, f)) {
    *q = &stream_cell; note("stream %u", f); return ready();
}
BOTH(cuStreamDestroy_v2, hipStreamDestroy, (void *q), (q)) { note("destroy stream"); return q != &stream_cell; }
BOTH(cuStreamSynchronize, hipStreamSynchronize, (void *q), (q)) { return ready() || q != &stream_cell; }
BOTH(cuModuleLoadData, hipModuleLoadData, (void **m, const void *code), (m, code)) {
    if (ready()) return ready();
    *m = thing(MODULE, (const char *)code, 0);
    note("load");
    return 0;
}
BOTH(cuModuleUnload, hipModuleUnload, (void *m), (m)) { note("unload"); return ready() ? ready() : end(MODULE, m); }
BOTH(cuModuleGetFunction, hipModuleGetFunction, (void **f, void *m, const char *name), (f, m, name)) {
    int i = place(MODULE, m);
    // The text stands for the code: a kernel of that name must be in it.
    if (i < 0 || !strstr(things[i].text, name)) return 500;
    *f = thing(FUNCTION, name, (uint64_t)m);
    note("function %s", name);
    return 0;
}
BOTH(cuFuncSetAttribute, hipFuncSetAttribute, (void *f, int a, int v), (f, a, v)) {
    int i = place(FUNCTION, f);
    if (i < 0 || a != 8) return 1;
    note("attribute %s %d %d", things[i].text, a, v);
    return 0;
}
EXPORT int cuLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c, unsigned shared,
                          void *q, void **params, void **extra) {
    int i_f = place(FUNCTION, f);
    if (ready() || q != &stream_cell || extra || i_f < 0) return 1;
    const char *name = things[i_f].text;
    if (strcmp(name, "add")) { note("launch %s %u,%u,%u %u,%u,%u shared %u", name, x, y, z, a, b, c, shared); return 0; }
    // `add`: acc, x, then the struct of one word.
    uint32_t n = *(uint32_t *)params[2];
    note("launch %s %u,%u,%u %u,%u,%u shared %u n %u", name, x, y, z, a, b, c, shared, n);
    if (is_capturing) return 0;
    float *acc = *(float **)params[0], *v = *(float **)params[1];
    if (!inside((uint64_t)acc, 4 * n) || !inside((uint64_t)v, 4 * n)) return 700;
    for (uint32_t i = 0; i < n; i++) acc[i] += v[i];
    return 0;
}
EXPORT int hipModuleLaunchKernel(void *f, unsigned x, unsigned y, unsigned z, unsigned a, unsigned b, unsigned c,
                                 unsigned shared, void *q, void **params, void **extra) {
    return cuLaunchKernel(f, x, y, z, a, b, c, shared, q, params, extra);
}
BOTH(cuEventCreate, hipEventCreateWithFlags, (void **e, unsigned f), (e, f)) {
    if (ready() || f) return 1;
    *e = thing(EVENT, "", 0);
    return 0;
}
BOTH(cuEventRecord, hipEventRecord, (void *e, void *q), (e, q)) {
    int i = place(EVENT, e);
    if (i < 0 || q != &stream_cell || ready()) return 1;
    things[i].is_recorded = 1;
    return 0;
}
BOTH(cuEventSynchronize, hipEventSynchronize, (void *e), (e)) {
    int i = place(EVENT, e);
    note("wait for event");
    return i < 0 || !things[i].is_recorded;
}
BOTH(cuEventElapsedTime, hipEventElapsedTime, (float *ms, void *a, void *b), (ms, a, b)) {
    int i = place(EVENT, a), j = place(EVENT, b);
    *ms = 1.5f * (j - i);
    return i < 0 || j < 0 || !things[i].is_recorded || !things[j].is_recorded;
}
BOTH(cuEventDestroy_v2, hipEventDestroy, (void *e), (e)) { note("destroy event"); return end(EVENT, e); }
BOTH(cuStreamBeginCapture_v2, hipStreamBeginCapture, (void *q, int mode), (q, mode)) {
    note("begin capture %d", mode);
    if (ready() || q != &stream_cell || is_capturing) return 1;
    is_capturing = 1;
    return 0;
}
BOTH(cuStreamEndCapture, hipStreamEndCapture, (void *q, void **g), (q, g)) {
    if (ready() || q != &stream_cell || !is_capturing) return 1;
    is_capturing = 0;
    *g = thing(GRAPH, "", 0);
    return 0;
}
BOTH(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags, (void **x, void *g, uint64_t f), (x, g, f)) {
    if (place(GRAPH, g) < 0 || f) return 1;
    *x = thing(EXEC, "", 0);
    return 0;
}
BOTH(cuGraphLaunch, hipGraphLaunch, (void *x, void *q), (x, q)) {
    note("replay"); return place(EXEC, x) < 0 || q != &stream_cell || ready();
}
BOTH(cuGraphDestroy, hipGraphDestroy, (void *g), (g)) { note("destroy graph"); return end(GRAPH, g); }
BOTH(cuGraphExecDestroy, hipGraphExecDestroy, (void *x), (x)) { note("destroy exec"); return end(EXEC, x); }
BOTH(cuGetErrorString, hipDrvGetErrorString, (int e, const char **s), (e, s)) {
    *s = e == 2 ? "out of memory" : "fake error"; return 0;
}

BOTH(nvrtcVersion, hiprtcVersion, (int *a, int *b), (a, b)) { *a = 13; *b = 0; return 0; }
BOTH(nvrtcCreateProgram, hiprtcCreateProgram,
     (void **p, const char *text, const char *name, int n, const char *const *h, const char *const *i),
     (p, text, name, n, h, i)) {
    (void)h; (void)i;
    *p = thing(PROGRAM, text, 0);
    note("compile %s", name);
    return n;
}
BOTH(nvrtcCompileProgram, hiprtcCompileProgram, (void *p, int n, const char *const *o), (p, n, o)) {
    int at = place(PROGRAM, p);
    for (int i = 0; i < n; i++) note("option %s", o[i]);
    return at < 0 || strstr(things[at].text, "softcap") ? 6 : 0;
}
BOTH(nvrtcGetProgramLogSize, hiprtcGetProgramLogSize, (void *p, size_t *n), (p, n)) { *n = 16; return place(PROGRAM, p) < 0; }
BOTH(nvrtcGetProgramLog, hiprtcGetProgramLog, (void *p, char *s), (p, s)) {
    strcpy(s, "it is not there"); return place(PROGRAM, p) < 0;
}
BOTH(nvrtcGetCUBINSize, hiprtcGetCodeSize, (void *p, size_t *n), (p, n)) {
    int i = place(PROGRAM, p);
    if (i < 0) return 1;
    *n = strlen(things[i].text) + 1;
    return 0;
}
BOTH(nvrtcGetCUBIN, hiprtcGetCode, (void *p, char *s), (p, s)) {
    int i = place(PROGRAM, p);
    if (i < 0) return 1;
    note("code");
    strcpy(s, things[i].text);
    return 0;
}
BOTH(nvrtcDestroyProgram, hiprtcDestroyProgram, (void **p), (p)) { int e = end(PROGRAM, *p); *p = 0; return e; }
// FAKE_ARCH: the last device that the compiler knows.
EXPORT int nvrtcGetNumSupportedArchs(int *n) { *n = 2; return 0; }
EXPORT int nvrtcGetSupportedArchs(int *archs) { archs[0] = 75; archs[1] = FAKE_ARCH; return 0; }
EXPORT int nvrtcGetPTXSize(void *p, size_t *n) { return fake_nvrtcGetCUBINSize(p, n); }
EXPORT int nvrtcGetPTX(void *p, char *s) { note("portable"); return fake_nvrtcGetCUBIN(p, s); }
