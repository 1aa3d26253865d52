/* Counts the blocks that Python's allocators return; see count.py. */
#include <Python.h>

static unsigned long long blocks;
static PyMemAllocatorEx object, memory;

static void *counted_malloc(void *context, size_t size)
{
    PyMemAllocatorEx *own = context;
    blocks++;
    return own->malloc(own->ctx, size);
}

static void *counted_calloc(void *context, size_t count, size_t size)
{
    PyMemAllocatorEx *own = context;
    blocks++;
    return own->calloc(own->ctx, count, size);
}

static void *counted_realloc(void *context, void *block, size_t size)
{
    PyMemAllocatorEx *own = context;
    blocks += block == NULL;
    return own->realloc(own->ctx, block, size);
}

static void counted_free(void *context, void *block)
{
    PyMemAllocatorEx *own = context;
    own->free(own->ctx, block);
}

static void hook(PyMemAllocatorDomain domain, PyMemAllocatorEx *own)
{
    PyMemAllocatorEx counted = {own, counted_malloc, counted_calloc, counted_realloc, counted_free};
    PyMem_GetAllocator(domain, own);
    PyMem_SetAllocator(domain, &counted);
}

void install(void)
{
    hook(PYMEM_DOMAIN_OBJ, &object);
    hook(PYMEM_DOMAIN_MEM, &memory);
}

unsigned long long count(void)
{
    return blocks;
}
