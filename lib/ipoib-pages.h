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

#ifndef IPOIB_PAGES_H
#define IPOIB_PAGES_H 1

/* Memory for big arrays, straight from the system: in huge pages where they
 * are big enough for that, so that one who reads here and there in them seldom
 * misses the TLB.
 *
 * Thread-safety: none is needed. */

#include <stddef.h>

/* 'size' bytes of zeros, aligned to a cache line at least. */
void *ipoib_pages_alloc(size_t size);
void ipoib_pages_free(void *, size_t size);

/* 'size' bytes of zeros, from the beginning of a page on, of which each page
 * takes memory when it is touched first.  They are small pages, also where the
 * system makes huge ones unasked: one of those would be taken as a whole. */
void *ipoib_pages_map(size_t size);
void ipoib_pages_unmap(void *, size_t size);

/* Addresses of 'size' bytes, a multiple of IPOIB_PAGES_HUGE, that have no
 * memory yet.  ipoib_pages_free() frees them. */
#define IPOIB_PAGES_HUGE ((size_t) 2 << 20)
char *ipoib_pages_reserve(size_t size);
/* Gives memory, zeros, to a further part of what was reserved at 'base', of
 * which the first 'used' bytes have some.  Returns how many bytes have some
 * then. */
size_t ipoib_pages_extend(char *base, size_t used);

#endif /* ipoib-pages.h */
