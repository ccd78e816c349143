/*
 * Licensed under the Apache License, Version 2.0 (the "License");
 * you may not use this file except in compliance with the License.
 * You may obtain a copy of the License at:
 *
 *     http://www.apache.org/licenses/LICENSE-2.0
 *
 * Unless required by applicable law or agreed to in writing, software
 * distributed under the License is distributed on an "AS IS" BASIS,
 * WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
 * See the License for the specific language governing permissions and
 * limitations under the License.
 */

#include <config.h>
#include "ipoib-pages.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>

#include "util.h"

/* What a small array grows by. */
#define SMALL_STEP ((size_t) 64 << 10)

/* Maps 'size' bytes from the beginning of a huge page on. */
static char *
map_aligned(size_t size, int prot)
{
    size_t used = ROUND_UP(size, get_page_size());
    char *base = mmap(NULL, used + IPOIB_PAGES_HUGE, prot,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED) {
        ovs_abort(errno, "no memory for %"PRIuSIZE" bytes", size);
    }

    size_t before = -(uintptr_t) base % IPOIB_PAGES_HUGE;
    if (before) {
        munmap(base, before);
    }
    munmap(base + before + used, IPOIB_PAGES_HUGE - before);
    return base + before;
}

/* It does no harm if the system has none. */
static void
advise_huge(void *p, size_t size)
{
#ifdef MADV_HUGEPAGE
    madvise(p, size, MADV_HUGEPAGE);
#endif
}

void *
ipoib_pages_alloc(size_t size)
{
    if (size < IPOIB_PAGES_HUGE) {
        return xzalloc_cacheline(size);
    }

    char *p = map_aligned(size, PROT_READ | PROT_WRITE);
    advise_huge(p, ROUND_UP(size, get_page_size()));
    return p;
}

void
ipoib_pages_free(void *p, size_t size)
{
    if (size < IPOIB_PAGES_HUGE) {
        free_cacheline(p);
    } else {
        munmap(p, ROUND_UP(size, get_page_size()));
    }
}

void *
ipoib_pages_map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED) {
        ovs_abort(errno, "no memory for %"PRIuSIZE" bytes", size);
    }
#ifdef MADV_NOHUGEPAGE
    madvise(p, size, MADV_NOHUGEPAGE);
#endif
    return p;
}

void
ipoib_pages_unmap(void *p, size_t size)
{
    if (p) {
        munmap(p, size);
    }
}

char *
ipoib_pages_reserve(size_t size)
{
    return map_aligned(size, PROT_NONE);
}

size_t
ipoib_pages_extend(char *base, size_t used)
{
    size_t step = used < IPOIB_PAGES_HUGE ? SMALL_STEP : IPOIB_PAGES_HUGE;

    if (mprotect(base + used, step, PROT_READ | PROT_WRITE)) {
        ovs_abort(errno, "no memory for %"PRIuSIZE" bytes", step);
    }
    if (step == IPOIB_PAGES_HUGE) {
        advise_huge(base + used, step);
    }
    return used + step;
}
