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
#include "ipoib-pool-private.h"

#include "util.h"

/* Pools that copy.
 *
 * A received packet is copied to one of exact size, so that frames never leave
 * the receive queues, and they are as far apart as they are long. */

static int
copy_init(struct ipoib_pool *pool, int numa_id)
{
    int error;

    ipoib_pool_store_init(pool);
    ipoib_pool_set_stride(pool,
                          ROUND_UP(IPOIB_POOL_PACKET_OFS + pool->size,
                                   CACHE_LINE_SIZE),
                          IPOIB_POOL_PACKET_OFS);
    error = ipoib_pool_map(pool, 4096, numa_id);
    if (error) {
        return error;
    }
    ipoib_pool_fill(pool);
    return 0;
}

static void
copy_uninit(struct ipoib_pool *pool)
{
    ipoib_pool_store_uninit(pool);
    ipoib_pool_unmap(pool);
}

const struct ipoib_pool_ops ipoib_pool_copy_ops = {
    .name = "copy",
    .init = copy_init,
    .uninit = copy_uninit,
    .get = ipoib_pool_store_get,
    .put = ipoib_pool_store_put,
    .count = ipoib_pool_store_count,
};
