/* A stand-in for NVIDIA's driver, as far as nanoeuler and numba-cuda ask it before a launch. FAKE_CUDA_... in the
   environment say what it answers. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

int cuDriverGetVersion(int *version) {
    *version = (int)number("FAKE_CUDA_VERSION", 13000);
    return 0;
}

int cuInit(unsigned flags) {
    (void)flags;
    if (number("FAKE_CUDA_CRASH", 0)) raise(SIGSEGV);
    if (number("FAKE_CUDA_HANG", 0)) sleep(600);
    return (int)number("FAKE_CUDA_INIT", 0);
}

int cuGetErrorName(int code, const char **name) {
    switch (code) {
    case 2: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
    case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; return 0;
    case 999: *name = "CUDA_ERROR_UNKNOWN"; return 0;
    }
    *name = NULL;
    return 1;
}

int cuDeviceGetCount(int *count) {
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int index) {
    *device = index;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device) {
    (void)device;
    snprintf(name, (size_t)size, "Fake GPU");
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    (void)device;
    *bytes = (size_t)16 << 30;
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    long capability = number("FAKE_CUDA_CAPABILITY", 90);
    *value = (int)(attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 0);
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (char *)0 + 4096 + device;
    return (int)number("FAKE_CUDA_RETAIN", 0);
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return 0;
}

int cuCtxPushCurrent_v2(void *context) {
    (void)context;
    return 0;
}

int cuCtxPopCurrent_v2(void **context) {
    *context = NULL;
    return 0;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *free_bytes = (size_t)number("FAKE_CUDA_FREE_MIB", 15000) << 20;
    *total = (size_t)16 << 30;
    return 0;
}

/* How cuda-bindings finds every other function: by its name without the version, which some have. */
int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    char versioned[128];
    (void)version;
    (void)flags;
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *function = dlsym(RTLD_DEFAULT, name);
    if (!*function) *function = dlsym(RTLD_DEFAULT, versioned);
    if (status) *status = *function ? 0 : 1;
    return *function ? 0 : 500;
}
