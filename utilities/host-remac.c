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
#include "host-remac.h"

#include "hash.h"
#include "util.h"

struct remac {
    struct hmap_node node;      /* In 'map', by 'key'. */
    uint64_t key;               /* QPN and LID. */
    struct ipoib_addr addr;
};

void
host_remacs_init(struct host_remacs *remacs)
{
    hmap_init(&remacs->map);
}

static void
remacs_clear(struct host_remacs *remacs)
{
    struct remac *remac;

    HMAP_FOR_EACH_SAFE (remac, node, &remacs->map) {
        hmap_remove(&remacs->map, &remac->node);
        free(remac);
    }
}

void
host_remacs_destroy(struct host_remacs *remacs)
{
    remacs_clear(remacs);
    hmap_destroy(&remacs->map);
}

static struct remac *
remac_find(const struct host_remacs *remacs, uint64_t key)
{
    struct remac *remac;

    HMAP_FOR_EACH_WITH_HASH (remac, node, hash_uint64(key), &remacs->map) {
        if (remac->key == key) {
            return remac;
        }
    }
    return NULL;
}

struct ipoib_addr
host_remacs_learn(struct host_remacs *remacs, uint32_t qpn, uint16_t lid,
                  const struct ipoib_addr *addr)
{
    uint64_t key = (uint64_t) qpn << 16 | lid;
    struct remac *remac = remac_find(remacs, key);
    struct ib_gid gid;

    if (!remac) {
        if (hmap_count(&remacs->map) >= HOST_REMAC_MAX) {
            remacs_clear(remacs);
        }
        remac = xmalloc(sizeof *remac);
        remac->key = key;
        hmap_insert(&remacs->map, &remac->node, hash_uint64(key));
    }
    remac->addr = *addr;

    memset(&gid, 0, sizeof gid);
    gid.raw[14] = lid >> 8;
    gid.raw[15] = lid;
    return ipoib_addr_make(qpn, &gid);
}

const struct ipoib_addr *
host_remacs_find(const struct host_remacs *remacs,
                 const struct ipoib_addr *addr)
{
    uint16_t lid = addr->gid.raw[14] << 8 | addr->gid.raw[15];
    const struct remac *remac = remac_find(
        remacs, (uint64_t) ipoib_addr_qpn(addr) << 16 | lid);

    return remac ? &remac->addr : NULL;
}
