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

/* Tests of the tables that the data path reads: ipoib-table, ipoib-slots,
 * ipoib-neigh and ipoib-host. */

#include <config.h>
#undef NDEBUG
#include "test-ipoib-tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ipoib-host.h"
#include "ipoib-index-private.h"
#include "ipoib-pages.h"
#include "ipoib-slots.h"
#include "ovs-rcu.h"
#include "ovstest.h"

/* True if the kernel has been told not to make huge pages of those around
 * 'p'. */
static bool
has_small_pages(const void *p)
{
    FILE *maps = fopen("/proc/self/smaps", "r");
    bool inside = false, small = false;
    uintptr_t start, end;
    char line[1024];

    ovs_assert(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%"SCNxPTR"-%"SCNxPTR" ", &start, &end) == 2) {
            inside = (uintptr_t) p >= start && (uintptr_t) p < end;
        } else if (inside && !strncmp(line, "VmFlags:", 8)) {
            small = strstr(line, " nh") != NULL;
        }
    }
    fclose(maps);
    return small;
}

static void
check_pages(void)
{
    size_t size = 4 * IPOIB_PAGES_HUGE;
    uint8_t *mapped = ipoib_pages_map(size);
    uint8_t *huge = ipoib_pages_alloc(size);

    ovs_assert(!mapped[0] && !mapped[size - 1] && !huge[size - 1]);
    if (!access("/sys/kernel/mm/transparent_hugepage", F_OK)) {
        ovs_assert(has_small_pages(mapped + size / 2));
        ovs_assert(!has_small_pages(huge + size / 2));
    }
    ipoib_pages_unmap(mapped, size);
    ipoib_pages_free(huge, size);
}

static void
check_table_basics(void)
{
    enum { N = 1000 };
    struct ipoib_table *t = ipoib_table_create(0);
    uint64_t keys[N];
    uint32_t expected[N];

    ovs_assert(ipoib_table_lookup(t, 0) == IPOIB_SLOT_NONE);
    ovs_assert(ipoib_table_remove(t, 0) == IPOIB_SLOT_NONE);
    ovs_assert(ipoib_table_remove(t, 5) == IPOIB_SLOT_NONE);
    ipoib_table_insert(t, UINT64_MAX, 7);
    ipoib_table_insert(t, UINT64_MAX, 8);
    ovs_assert(ipoib_table_count(t) == 1);
    ovs_assert(ipoib_table_lookup(t, UINT64_MAX) == 8);
    ovs_assert(ipoib_table_insert_new(t, UINT64_MAX, 9) == 8);
    ovs_assert(ipoib_table_remove(t, UINT64_MAX) == 8);
    ovs_assert(ipoib_table_insert_new(t, UINT64_MAX, 9) == 9);
    ovs_assert(ipoib_table_lookup(t, UINT64_MAX) == 9);
    ovs_assert(ipoib_table_remove(t, UINT64_MAX) == 9);
    ovs_assert(ipoib_table_count(t) == 0);

    /* Keys that differ in few bits, in low ones and in high ones. */
    for (size_t i = 0; i < N; i++) {
        keys[i] = i < N / 2 ? i : (uint64_t) i << 48;
        expected[i] = i ? i : IPOIB_SLOT_NONE;
        if (i) {
            ipoib_table_insert(t, keys[i], i);
        }
    }
    check_table(t, keys, expected, N);
    ovs_assert(ipoib_table_memory(t) >= N * 12);
    ovs_assert(ipoib_table_memory(t) <= N * 40);
    for (size_t i = 1; i < N; i += 2) {
        ovs_assert(ipoib_table_remove(t, keys[i]) == i);
        expected[i] = IPOIB_SLOT_NONE;
    }
    check_table(t, keys, expected, N);
    check_table(t, keys, expected, 0);
    ipoib_table_destroy(t);
    ipoib_table_destroy(NULL);
}

static void
check_table_keys(void)
{
    uint64_t basis = 1234567;
    struct in6_addr a = ip4(1), b = ip6(1), c = ip6(2);

    ovs_assert(ipoib_table_key_ip(&a, basis)
               == (UINT64_C(1) << 62 | 0x0a000001));
    ovs_assert(ipoib_table_key_ip(&b, basis) >> 63);
    ovs_assert(ipoib_table_key_ip(&b, basis)
               != ipoib_table_key_ip(&c, basis));
    ovs_assert(ipoib_table_key_ip(&b, basis)
               != ipoib_table_key_ip(&b, basis + 1));
    ovs_assert(ipoib_table_key_ip(&in6addr_any, basis));
    ovs_assert(ipoib_table_key_128(basis, 0, basis) == 1);
}

/* Index. */

/* True if 'slot' is among those that may have 'key'. */
static bool
index_has(const struct ipoib_index *index, uint64_t key, uint32_t slot)
{
    struct ipoib_index_cursor cursor = ipoib_index_find(index, key);
    bool found = false;

    while (ipoib_index_next(&cursor)) {
        found |= cursor.slot == slot;
    }
    return found;
}

/* What the data path finds for each of 'n' keys, at most 64. */
static void
index_guess(const struct ipoib_index *index, const uint64_t keys[], size_t n,
            uint32_t slots[])
{
    struct ipoib_index_view view = ipoib_index_view(index);
    struct ipoib_index_bucket *homes[64];
    uint64_t hashes[64];

    for (size_t i = 0; i < n; i++) {
        homes[i] = ipoib_index_home(&view, keys[i], &hashes[i]);
    }
    for (size_t i = 0; i < n; i++) {
        slots[i] = ipoib_index_guess(homes[i], hashes[i]) / CACHE_LINE_SIZE
                   - 1;
    }
}

static void
check_index(void)
{
    enum { N = 20000, SAME = 50 };
    struct ipoib_index *index = ipoib_index_create(0);
    size_t n_guessed = 0;

    ovs_assert(!index_has(index, 5, 5));
    for (uint32_t i = 0; i < N; i++) {
        /* LIDs and QPNs: keys at equal distances. */
        ipoib_index_insert(index, ipoib_neigh_lid_key(1 + i % 100, i / 100),
                           i);
        ovs_assert(ipoib_index_memory(index) <= 1000 + i * 16);
    }
    ovs_assert(ipoib_index_count(index) == N);
    ovs_assert(ipoib_index_memory(index) >= N * 8);

    /* Nearly all are in their home buckets, and found at the first look. */
    for (uint32_t i = 0; i < N; i += 50) {
        uint64_t keys[50];
        uint32_t slots[50];

        for (uint32_t j = 0; j < 50; j++) {
            keys[j] = ipoib_neigh_lid_key(1 + (i + j) % 100, (i + j) / 100);
            ovs_assert(index_has(index, keys[j], i + j));
        }
        index_guess(index, keys, 50, slots);
        for (uint32_t j = 0; j < 50; j++) {
            n_guessed += slots[j] == i + j;
        }
    }
    ovs_assert(n_guessed >= N * 9 / 10);

    /* Many with the same key fill the buckets behind theirs, with others in
     * between; each is found all the same, and when they are gone the
     * others. */
    for (uint32_t i = 0; i < SAME; i++) {
        ipoib_index_insert(index, 12345, N + i);
    }
    for (uint32_t i = 0; i < SAME; i++) {
        ovs_assert(index_has(index, 12345, N + i));
    }
    for (uint32_t i = 0; i < SAME; i++) {
        ipoib_index_remove(index, 12345, N + i);
        ovs_assert(!index_has(index, 12345, N + i));
        ovs_assert(i + 1 == SAME || index_has(index, 12345, N + i + 1));
    }
    for (uint32_t i = 0; i < N; i++) {
        uint64_t key = ipoib_neigh_lid_key(1 + i % 100, i / 100);

        ovs_assert(index_has(index, key, i));
        if (i % 3) {
            ipoib_index_remove(index, key, i);
            ovs_assert(!index_has(index, key, i));
        }
    }
    ipoib_index_destroy(index);
    ipoib_index_destroy(NULL);
}

/* Entries come and go in an index so small that each bucket was passed once:
 * a look-up ends all the same. */
static void
check_index_churn(void)
{
    enum { N = 14 };
    struct ipoib_index *index = ipoib_index_create(0);

    for (uint64_t i = 0; i < 20000; i++) {
        ipoib_index_insert(index, i + 1, i % N);
        ovs_assert(!index_has(index, UINT64_MAX - i, N));
        if (i >= N - 1) {
            ovs_assert(index_has(index, i + 2 - N, (i + 1) % N));
            ipoib_index_remove(index, i + 2 - N, (i + 1) % N);
        }
    }
    ovs_assert(ipoib_index_count(index) == N - 1);
    ipoib_index_destroy(index);
}

/* Slots. */

static void
check_slots(void)
{
    struct ipoib_slots *s = ipoib_slots_create(24);
    uint32_t a = ipoib_slots_alloc(s);
    uint32_t b = ipoib_slots_alloc(s);

    ovs_assert(a == 0 && b == 1 && ipoib_slots_end(s) == 2);
    memset(ipoib_slots_fast(s, a), 0xaa, CACHE_LINE_SIZE);
    memset(ipoib_slots_get(s, a), 0xbb, 24);
    memset(ipoib_slots_get(s, b), 0xcc, 24);
    ovs_assert(!ipoib_slots_get(s, 2));
    ovs_assert(!ipoib_slots_get(s, IPOIB_SLOT_NONE));
    ovs_assert((uintptr_t) ipoib_slots_fast(s, b) % CACHE_LINE_SIZE == 0);

    /* A slot that was freed stays as it is until we quiesce. */
    ipoib_slots_free(s, a);
    ovs_assert(!ipoib_slots_get(s, a));
    for (int i = 0; i < 3000; i++) {
        uint32_t c = ipoib_slots_alloc(s);

        ovs_assert(c != a && c != b);
        memset(ipoib_slots_fast(s, c), 0xdd, CACHE_LINE_SIZE);
        ipoib_slots_free(s, c);
    }
    ovs_assert(*(uint8_t *) ipoib_slots_fast(s, a) == 0xaa);
    uint32_t end = ipoib_slots_end(s);
    ovs_assert(end == 3002);

    /* Then they come again: first the one that was freed first, then the rest,
     * which waited for another grace period. */
    ovsrcu_barrier();
    ovs_assert(ipoib_slots_alloc(s) == a);
    ovs_assert(!*(uint8_t *) ipoib_slots_fast(s, a));
    ovs_assert(!*(uint8_t *) ipoib_slots_get(s, a));
    ovsrcu_barrier();
    for (int i = 0; i < 3000; i++) {
        uint32_t c = ipoib_slots_alloc(s);

        ovs_assert(c != a && c != b && c < end);
        ovs_assert(!*(uint8_t *) ipoib_slots_fast(s, c));
    }
    ovs_assert(ipoib_slots_alloc(s) == end);
    ovs_assert(*(uint8_t *) ipoib_slots_get(s, b) == 0xcc);

    /* Destroyed while a slot waits. */
    ipoib_slots_free(s, b);
    ipoib_slots_destroy(s);
    ipoib_slots_destroy(NULL);
    ovsrcu_barrier();
}

/* All fast parts are one array, also after it has got more memory. */
static void
check_slots_many(void)
{
    enum { N = 100000 };
    struct ipoib_slots *s = ipoib_slots_create(8);
    char *lines = ipoib_slots_lines(s);
    size_t fast, slow;

    for (uint32_t i = 0; i < N; i++) {
        ovs_assert(ipoib_slots_alloc(s) == i);
        memset(ipoib_slots_fast(s, i), i & 0x7f, CACHE_LINE_SIZE);
        *(uint64_t *) ipoib_slots_get(s, i) = i;
    }
    for (size_t i = 0; i < CACHE_LINE_SIZE; i++) {
        ovs_assert(!lines[i]);
    }
    for (uint32_t i = 0; i < N; i++) {
        char *line = lines + (i + 1) * CACHE_LINE_SIZE;

        ovs_assert(line == ipoib_slots_fast(s, i));
        ovs_assert(line[0] == (i & 0x7f)
                   && line[CACHE_LINE_SIZE - 1] == (i & 0x7f));
        ovs_assert(*(uint64_t *) ipoib_slots_get(s, i) == i);
    }
    ipoib_slots_memory(s, &fast, &slow);
    ovs_assert(fast >= (N + 1) * CACHE_LINE_SIZE);
    ovs_assert(fast < (N + 1) * CACHE_LINE_SIZE + IPOIB_PAGES_HUGE);
    ovs_assert(slow >= N * 8 && slow < N * 8 + N);
    ipoib_slots_destroy(s);
    ovsrcu_barrier();
}

/* Neighbours. */

/* Removed neighbours, as the owner hears of them. */
static size_t n_removed;
static struct ipoib_addr last_removed;

static void
removed_cb(void *aux, struct ipoib_neigh *neigh)
{
    ovs_assert(aux == &n_removed);
    ovs_assert(neigh->path == (void *) (uintptr_t) neigh->slot);
    n_removed++;
    last_removed = neigh->addr;
}

static const struct ipoib_neigh_ops neigh_ops = { .removed = removed_cb };

static struct ipoib_neigh_table *
new_table(size_t max)
{
    n_removed = 0;
    return ipoib_neigh_table_create(PKEY, max, &neigh_ops, &n_removed);
}

/* As the owner does: something to be released. */
static struct ipoib_neigh *
own(struct ipoib_neigh *neigh)
{
    neigh->path = (void *) (uintptr_t) neigh->slot;
    return neigh;
}

static void
check_neigh_basics(void)
{
    struct ipoib_neigh_table *t = new_table(100);
    struct ipoib_addr addr = make_addr(GUID + 1, 0x405);
    struct in6_addr a = ip4(1), b = ip6(1), group, none = in6addr_any;
    struct in6_addr none4 = in6_addr_mapped_ipv4(0);

    group = in6_addr_mapped_ipv4(htonl(0xe0000001));
    ovs_assert(!by_addr(t, &addr) && !by_ip(t, a) && !by_lid(t, 5, 0x405));

    struct ipoib_neigh *n = learn(t, addr, &a, 5, 1000,
                                  IPOIB_NEIGH_NEW | IPOIB_NEIGH_NEW_IP);
    own(n);
    ovs_assert(ipoib_neigh_table_count(t) == 1);
    ovs_assert(!n->more && !n->path);
    ovs_assert(eth_addr_equals(n->mac, ipoib_standin_mac(PKEY, &addr, 0)));
    ovs_assert(by_mac(t, n->mac) == n && by_addr(t, &addr) == n);
    ovs_assert(by_ip(t, a) == n && by_lid(t, 5, 0x405) == n);
    ovs_assert(by_lid_alone(t, 5) == n && !by_lid(t, 5, 0x406));
    ovs_assert(ipoib_neigh_used(t, n) == 1000);

    struct ipoib_neigh_fast *fast = ipoib_neigh_fast(t, n->slot);
    struct ibv_ah *ah;
    ovs_assert(fast->qpn == 0x405 && ib_gid_equals(&fast->gid, &addr.gid));
    ovs_assert(fast->mac == ipoib_frame_mac(eth_addr_to_uint64(n->mac)));
    atomic_read_relaxed(&fast->ah, &ah);
    ovs_assert(!ah);
    ipoib_neigh_set_ah(t, n, (struct ibv_ah *) fast, 2044);
    atomic_read_relaxed(&fast->ah, &ah);
    ovs_assert(ah == (struct ibv_ah *) fast && fast->mtu == 2044);
    ipoib_neigh_mark_used(fast, 7);
    ovs_assert(ipoib_neigh_used(t, n) == 7000);

    /* The same again; flags do not count; nothing that is no station's. */
    put_16aligned_be32(&addr.flags_qpn, htonl(0x80000405));
    ovs_assert(learn(t, addr, &a, 0, 2000, 0) == n);
    ovs_assert(n->lid == 5 && ipoib_neigh_n_ips(n) == 1);
    ovs_assert(!(ntohl(get_16aligned_be32(&n->addr.flags_qpn)) >> 24));
    learn(t, addr, &none, 5, 2000, 0);
    learn(t, addr, &none4, 5, 2000, 0);
    learn(t, addr, &group, 5, 2000, 0);
    learn(t, addr, NULL, 5, 2000, 0);
    ovs_assert(ipoib_neigh_n_ips(n) == 1);
    learn(t, addr, &b, 5, 2000, IPOIB_NEIGH_NEW_IP);
    ovs_assert(ipoib_neigh_n_ips(n) == 2 && by_ip(t, b) == n);
    for (int i = 0; i < 2; i++) {
        ipoib_neigh_forget_ip(t, &b);
        ovs_assert(ipoib_neigh_n_ips(n) == 1 && !by_ip(t, b));
        ovs_assert(!ipoib_neigh_find_ip(t, &b));
    }
    learn(t, addr, &b, 5, 2000, IPOIB_NEIGH_NEW_IP);

    /* Another LID, another prefix. */
    learn(t, addr, &b, 6, 2000, IPOIB_NEIGH_NEW_LID);
    ovs_assert(!by_lid(t, 5, 0x405) && !by_lid_alone(t, 5));
    ovs_assert(by_lid(t, 6, 0x405) == n && by_lid_alone(t, 6) == n);
    addr.gid = ib_gid_make(UINT64_C(0xfec0000000000001), GUID + 1);
    ovs_assert(learn(t, addr, &b, 6, 2000, IPOIB_NEIGH_NEW_LID) == n);
    ovs_assert(by_addr(t, &addr) == n);
    ovs_assert(ib_gid_equals(&fast->gid, &addr.gid));
    ovs_assert(ipoib_neigh_table_count(t) == 1);

    /* It moves to another station. */
    struct ipoib_addr other = make_addr(GUID + 2, 0x405);
    struct ipoib_neigh *m = learn(t, other, &a, 0, 3000,
                                  IPOIB_NEIGH_NEW | IPOIB_NEIGH_MOVED_IP);
    own(m);
    ovs_assert(by_ip(t, a) == m);
    ovs_assert(ipoib_neigh_n_ips(n) == 1 && ipoib_neigh_n_ips(m) == 1);
    ovs_assert(!eth_addr_equals(n->mac, m->mac));

    struct eth_addr mac = n->mac;
    ipoib_neigh_remove(t, n);
    ovs_assert(n_removed == 1 && ipoib_addr_equals(&last_removed, &addr));
    ovs_assert(!by_mac(t, mac) && !by_addr(t, &addr) && !by_ip(t, b));
    ovs_assert(!by_lid(t, 6, 0x405) && !by_lid_alone(t, 6));
    ovs_assert(ipoib_neigh_flush(t) == 1 && n_removed == 2);
    ovs_assert(!ipoib_neigh_table_count(t) && !by_ip(t, a));
    ipoib_neigh_table_destroy(t);
    ipoib_neigh_table_destroy(NULL);
}

static void
check_neigh_lids(void)
{
    struct ipoib_neigh_table *t = new_table(100);
    struct ipoib_neigh *n[4];

    /* 0, 1 and 2: the same LID and QPN; 3: another QPN. */
    for (int i = 0; i < 4; i++) {
        n[i] = own(learn(t, make_addr(GUID + i, i < 3 ? 0x100 : 0x200), NULL,
                         9, 1000, IPOIB_NEIGH_NEW));
        ovs_assert(by_lid(t, 9, 0x100) == (i ? NULL : n[0]));
        ovs_assert(by_lid_alone(t, 9) == (i ? NULL : n[0]));
    }
    ovs_assert(by_lid(t, 9, 0x200) == n[3]);

    /* Of routers, one alone is found. */
    ovs_assert(ipoib_neigh_router_of_lid(t, 9) == IPOIB_SLOT_NONE);
    ipoib_neigh_set_routes(t, n[1], true);
    ovs_assert(ipoib_neigh_router_of_lid(t, 9) == n[1]->slot);
    ipoib_neigh_set_routes(t, n[0], true);
    ovs_assert(ipoib_neigh_router_of_lid(t, 9) == IPOIB_SLOT_NONE);
    ipoib_neigh_set_routes(t, n[1], false);
    ovs_assert(ipoib_neigh_router_of_lid(t, 9) == n[0]->slot);
    ovs_assert(by_lid(t, 9, 0x200) == n[3] && !by_lid_alone(t, 9));

    learn(t, n[0]->addr, NULL, 10, 1000, IPOIB_NEIGH_NEW_LID);
    ovs_assert(!by_lid(t, 9, 0x100));
    ovs_assert(by_lid(t, 10, 0x100) == n[0]);
    ovs_assert(by_lid_alone(t, 10) == n[0]);
    ovs_assert(ipoib_neigh_router_of_lid(t, 10) == n[0]->slot);
    ovs_assert(ipoib_neigh_router_of_lid(t, 9) == IPOIB_SLOT_NONE);
    ipoib_neigh_remove(t, n[1]);
    ovs_assert(by_lid(t, 9, 0x100) == n[2] && !by_lid_alone(t, 9));
    ipoib_neigh_remove(t, n[3]);
    ovs_assert(by_lid(t, 9, 0x100) == n[2] && by_lid_alone(t, 9) == n[2]);
    learn(t, n[0]->addr, NULL, 9, 1000, IPOIB_NEIGH_NEW_LID);
    ovs_assert(!by_lid(t, 9, 0x100) && !by_lid(t, 10, 0x100));
    ipoib_neigh_remove(t, n[0]);
    ovs_assert(by_lid(t, 9, 0x100) == n[2] && by_lid_alone(t, 9) == n[2]);
    ovs_assert(ipoib_neigh_router_of_lid(t, 9) == IPOIB_SLOT_NONE);
    ipoib_neigh_table_destroy(t);
    ovs_assert(n_removed == 4);
}

static void
check_neigh_reborn(void)
{
    struct ipoib_neigh_table *t = new_table(100);
    struct in6_addr a = ip4(1), b = ip4(2), a6 = ip6(1);
    unsigned int new = IPOIB_NEIGH_NEW, reborn = IPOIB_NEIGH_REBORN;
    long long int now = 1000;

    struct ipoib_neigh *n = own(learn(t, make_addr(GUID, 0x100), &a, 3, now,
                                      new | IPOIB_NEIGH_NEW_IP));
    struct eth_addr mac1 = n->mac;
    learn(t, n->addr, &a6, 3, now, IPOIB_NEIGH_NEW_IP);

    /* Reboots: all that it had moves. */
    n = own(learn(t, make_addr(GUID, 0x101), &a, 3, now, new | reborn));
    struct eth_addr mac2 = n->mac;
    ovs_assert(n_removed == 1 && ipoib_neigh_table_count(t) == 1);
    ovs_assert(ipoib_neigh_n_ips(n) == 2);
    ovs_assert(by_ip(t, a) == n && by_ip(t, a6) == n);
    ovs_assert(!eth_addr_equals(mac1, mac2));
    ovs_assert(by_mac(t, mac1) == n && by_mac(t, mac2) == n);
    ovs_assert(by_lid(t, 3, 0x101) == n && !by_lid(t, 3, 0x100));

    /* And again, by its other address, and with an address less. */
    now += 1000;
    n = own(learn(t, make_addr(GUID, 0x102), &a6, 3, now, new | reborn));
    struct eth_addr mac3 = n->mac;
    ovs_assert(by_mac(t, mac1) == n && by_mac(t, mac2) == n);
    ovs_assert(by_mac(t, mac3) == n && ovs_list_size(&n->more->aliases) == 2);

    /* Back to the first QPN: an alias is the MAC again. */
    now += 1000;
    n = own(learn(t, make_addr(GUID, 0x100), &a, 3, now, new | reborn));
    ovs_assert(eth_addr_equals(n->mac, mac1) && !n->attempt);
    ovs_assert(by_mac(t, mac1) == n && by_mac(t, mac2) == n);
    ovs_assert(by_mac(t, mac3) == n && ovs_list_size(&n->more->aliases) == 2);

    /* Aliases end one after the other. */
    ipoib_neigh_age(t, 1000 + IPOIB_NEIGH_ALIAS_MS, INT64_MAX, 100);
    ovs_assert(by_mac(t, mac1) == n && by_mac(t, mac2) == n);
    ipoib_neigh_age(t, 2000 + IPOIB_NEIGH_ALIAS_MS, INT64_MAX, 100);
    ovs_assert(by_mac(t, mac1) == n && !by_mac(t, mac2));
    ovs_assert(by_mac(t, mac3) == n);
    ipoib_neigh_age(t, 3000 + IPOIB_NEIGH_ALIAS_MS, INT64_MAX, 100);
    ovs_assert(by_mac(t, mac1) == n && !by_mac(t, mac3));

    /* Two that live on one GUID: an address moves between them. */
    learn(t, n->addr, &b, 3, now, IPOIB_NEIGH_NEW_IP);
    struct ipoib_neigh *m = own(learn(t, make_addr(GUID, 0x200), &a, 3, now,
                                      new | IPOIB_NEIGH_MOVED_IP));
    ovs_assert(ipoib_neigh_table_count(t) == 2 && n_removed == 3);
    ovs_assert(by_ip(t, a) == m && by_ip(t, b) == n && by_ip(t, a6) == n);
    ovs_assert(by_mac(t, n->mac) == n && by_mac(t, m->mac) == m);

    /* With its last IPv4 address it is taken for dead, by a mistake: it gets
     * its MAC back.  The LID is no longer shared after that. */
    learn(t, m->addr, &b, 3, now, reborn);
    ovs_assert(by_mac(t, mac1) == m && by_ip(t, a6) == m);
    ovs_assert(ipoib_neigh_n_ips(m) == 3);
    ovs_assert(by_lid_alone(t, 3) == m);
    n = own(learn(t, make_addr(GUID, 0x100), &b, 3, now,
                  new | IPOIB_NEIGH_MOVED_IP));
    ovs_assert(eth_addr_equals(n->mac, mac1) && by_mac(t, mac1) == n);
    ovs_assert(ovs_list_is_empty(&m->more->aliases) && by_ip(t, b) == n);

    /* No more aliases than the limit: the oldest go. */
    struct eth_addr macs[20];
    for (int i = 0; i < 20; i++) {
        learn(t, make_addr(GUID + 1, 0x300 + i), &a, 0, now,
              i ? new | reborn : new | IPOIB_NEIGH_MOVED_IP);
        n = own(ipoib_neigh_find_ip(t, &a));
        macs[i] = n->mac;
        for (int j = 0; j <= i; j++) {
            bool kept = i - j <= IPOIB_NEIGH_MAX_ALIASES;

            ovs_assert(by_mac(t, macs[j]) == (kept ? n : NULL));
        }
    }
    ipoib_neigh_remove(t, n);
    for (int i = 0; i < 20; i++) {
        ovs_assert(!by_mac(t, macs[i]));
    }
    ipoib_neigh_table_destroy(t);
}

/* What a neighbour has beyond the usual comes and goes. */
static void
check_neigh_more(void)
{
    struct ipoib_neigh_table *t = new_table(100);
    struct in6_addr a = ip4(1), b = ip6(1), c = ip6(2);
    struct ipoib_neigh *n = own(learn(t, make_addr(GUID, 0x100), &a, 3, 1000,
                                      IPOIB_NEIGH_NEW | IPOIB_NEIGH_NEW_IP));
    size_t fast, all, all2;

    ipoib_neigh_table_memory(t, &fast, &all);
    ovs_assert(fast < all);
    ovs_assert(!n->more);
    learn(t, n->addr, &b, 3, 1000, IPOIB_NEIGH_NEW_IP);
    ovs_assert(n->more && ipoib_neigh_n_ips(n) == 2);
    ipoib_neigh_table_memory(t, &fast, &all2);
    ovs_assert(all2 > all);

    /* The latest one is the first one. */
    ovs_assert(ipv6_addr_equals(ipoib_neigh_ip(n, 0), &b));
    learn(t, n->addr, &c, 3, 1000, IPOIB_NEIGH_NEW_IP);
    learn(t, n->addr, &a, 3, 1000, 0);
    ovs_assert(ipv6_addr_equals(ipoib_neigh_ip(n, 0), &a));
    ovs_assert(ipv6_addr_equals(ipoib_neigh_ip(n, 1), &c));
    ovs_assert(ipv6_addr_equals(ipoib_neigh_ip(n, 2), &b));
    ipoib_neigh_forget_ip(t, &c);
    ovs_assert(ipv6_addr_equals(ipoib_neigh_ip(n, 1), &b));
    ipoib_neigh_forget_ip(t, &a);
    ovs_assert(ipv6_addr_equals(ipoib_neigh_ip(n, 0), &b) && !n->more);
    ipoib_neigh_forget_ip(t, &b);
    ovs_assert(!ipoib_neigh_n_ips(n) && !by_ip(t, a) && !by_ip(t, b));

    /* What the owner puts there keeps it. */
    ipoib_neigh_more(n)->n_wait = 1;
    learn(t, n->addr, &a, 3, 1000, IPOIB_NEIGH_NEW_IP);
    learn(t, n->addr, &b, 3, 1000, IPOIB_NEIGH_NEW_IP);
    ipoib_neigh_forget_ip(t, &a);
    ovs_assert(n->more && n->more->n_wait == 1);
    n->more->n_wait = 0;
    ipoib_neigh_trim(n);
    ovs_assert(!n->more && by_ip(t, b) == n);
    ipoib_neigh_table_memory(t, &fast, &all2);
    ovs_assert(all2 == all);
    ipoib_neigh_table_destroy(t);
}

/* Lists that the owner makes. */
static void
check_neigh_lists(void)
{
    struct ipoib_neigh_table *t = new_table(100);
    struct ipoib_neigh_list list = IPOIB_NEIGH_LIST_INITIALIZER;
    struct ipoib_neigh *n[3], *neigh;
    const enum ipoib_neigh_order order = IPOIB_NEIGH_BY_PATH;

    for (int i = 0; i < 3; i++) {
        n[i] = own(learn(t, make_addr(GUID + i, 0x100), NULL, 3, 1000,
                         IPOIB_NEIGH_NEW));
    }
    for (int removed = 0; removed < 3; removed++) {
        int i = 0;

        ovs_assert(ipoib_neigh_list_is_empty(&list));
        for (int j = 0; j < 3; j++) {
            ipoib_neigh_list_push_back(t, &list, order, n[j]);
        }
        ipoib_neigh_list_remove(t, &list, order, n[removed]);
        IPOIB_NEIGH_LIST_FOR_EACH (neigh, order, &list, t) {
            i += i == removed;
            ovs_assert(neigh == n[i++]);
        }
        ovs_assert(i + (removed == 2) == 3);
        for (int j = 2; j >= 0; j--) {
            if (j != removed) {
                ipoib_neigh_list_remove(t, &list, order, n[j]);
            }
        }
    }
    ovs_assert(ipoib_neigh_list_is_empty(&list)
               && list.last == IPOIB_SLOT_NONE);
    ipoib_neigh_table_destroy(t);
}

/* Identities whose stand-in MACs are the same, found by trying 24 million. */
static const struct {
    uint32_t qpn1;
    uint64_t guid1;
    uint32_t qpn2;
    uint64_t guid2;
} collisions[] = {
    { 0x65c, GUID + 0x1a1c, 0x778, GUID + 0x3b8f },
    { 0x41d, GUID + 0x1ed4, 0x4d4, GUID + 0x3687 },
    { 0x67a, GUID + 0x2b0f, 0x76c, GUID + 0x4a2a },
};

static void
check_neigh_collisions(void)
{
    struct ipoib_neigh_table *t = new_table(100);
    struct in6_addr a = ip4(1);
    unsigned int new = IPOIB_NEIGH_NEW;

    for (size_t i = 0; i < ARRAY_SIZE(collisions); i++) {
        struct ipoib_addr one = make_addr(collisions[i].guid1,
                                          collisions[i].qpn1);
        struct ipoib_addr two = make_addr(collisions[i].guid2,
                                          collisions[i].qpn2);
        struct eth_addr mac = ipoib_standin_mac(PKEY, &one, 0);

        ovs_assert(eth_addr_equals(mac, ipoib_standin_mac(PKEY, &two, 0)));
        ovs_assert(!eth_addr_equals(mac, ipoib_standin_mac(PKEY, &two, 1)));

        struct ipoib_neigh *n = own(learn(t, one, NULL, 0, 1000, new));
        struct ipoib_neigh *m = own(learn(t, two, NULL, 0, 1000, new));
        struct eth_addr mac2 = m->mac;
        ovs_assert(eth_addr_equals(n->mac, mac) && n->attempt == 0);
        ovs_assert(eth_addr_equals(mac2, ipoib_standin_mac(PKEY, &two, 1)));
        ovs_assert(by_mac(t, mac) == n && by_mac(t, mac2) == m);

        /* The first goes, comes again. */
        ipoib_neigh_remove(t, n);
        ovs_assert(!by_mac(t, mac) && by_mac(t, mac2) == m);
        n = own(learn(t, one, NULL, 0, 1000, new));
        ovs_assert(by_mac(t, mac) == n && by_mac(t, mac2) == m);

        /* The second goes, comes again as the only one. */
        ipoib_neigh_remove(t, m);
        ovs_assert(by_mac(t, mac) == n && !by_mac(t, mac2));
        ipoib_neigh_remove(t, n);
        m = own(learn(t, two, NULL, 0, 1000, new));
        ovs_assert(by_mac(t, mac) == m && m->attempt == 0);
        ipoib_neigh_remove(t, m);

        /* The first is reborn; its old MAC, an alias now, is not the
         * second's.  When the second is gone, the alias is still there. */
        own(learn(t, one, &a, 0, 1000, new | IPOIB_NEIGH_NEW_IP));
        n = own(learn(t, make_addr(collisions[i].guid1, 0xabc), &a, 0, 1000,
                      new | IPOIB_NEIGH_REBORN));
        m = own(learn(t, two, NULL, 0, 1000, new));
        ovs_assert(m->attempt == 1);
        ovs_assert(by_mac(t, mac) == n && by_mac(t, mac2) == m);
        ipoib_neigh_remove(t, m);
        ovs_assert(by_mac(t, mac) == n && !by_mac(t, mac2));
        m = own(learn(t, two, NULL, 0, 1000, new));
        ipoib_neigh_remove(t, n);
        ovs_assert(!by_mac(t, mac) && by_mac(t, mac2) == m);
        ipoib_neigh_remove(t, m);
    }
    ipoib_neigh_table_destroy(t);
}

static void
check_neigh_limits(void)
{
    struct ipoib_neigh_table *t = new_table(10);
    unsigned int new = IPOIB_NEIGH_NEW;
    long long int now = 100000;

    /* The one that was used least recently goes. */
    for (int i = 0; i < 10; i++) {
        own(learn(t, make_addr(GUID, 0x100 + i), NULL, 0, now, new));
        now += 1000;
    }
    struct ipoib_addr addr0 = make_addr(GUID, 0x100);
    struct ipoib_addr addr1 = make_addr(GUID, 0x101);
    learn(t, addr0, NULL, 0, now, 0);
    ipoib_neigh_mark_used(ipoib_neigh_fast(t, by_addr(t, &addr1)->slot),
                          now / 1000);
    ovs_assert(!n_removed);
    for (int i = 10; i < 18; i++) {
        own(learn(t, make_addr(GUID, 0x100 + i), NULL, 0, now, new));
        ovs_assert(n_removed == i - 9);
        ovs_assert(ipoib_addr_qpn(&last_removed) == 0x100 + i - 8);
    }
    ovs_assert(by_addr(t, &addr0) && by_addr(t, &addr1));
    ovs_assert(ipoib_neigh_table_count(t) == 10);
    ovs_assert(ipoib_neigh_was_forgotten(
                   t, ipoib_standin_mac(PKEY, &last_removed, 0)));
    ovs_assert(!ipoib_neigh_was_forgotten(
                   t, ipoib_standin_mac(PKEY, &addr0, 0)));
    ipoib_neigh_table_set_max(t, 3);
    ovs_assert(ipoib_neigh_table_count(t) == 3 && n_removed == 15);
    ipoib_neigh_table_set_max(t, 0);
    ovs_assert(ipoib_neigh_table_count(t) == 1);

    /* The data path is ahead of the clock: the new one stays all the same. */
    for (int i = 0; i < 200; i++) {
        struct ipoib_addr addr = make_addr(GUID, 0x200 + i);
        struct ipoib_neigh *n = own(learn(t, addr, NULL, 0, now, new));

        ovs_assert(by_addr(t, &addr) == n);
        ipoib_neigh_mark_used(ipoib_neigh_fast(t, n->slot), now / 1000 + 5);
    }

    /* Of 100 addresses, the latest 64 stay, and the one that is heard. */
    struct ipoib_neigh *n = own(learn(t, addr0, NULL, 0, now, new));
    for (int i = 0; i < 100; i++) {
        struct in6_addr ip = ip4(i), first = ip4(0);

        learn(t, addr0, &ip, 0, now, IPOIB_NEIGH_NEW_IP);
        learn(t, addr0, &first, 0, now, 0);
    }
    ovs_assert(ipoib_neigh_n_ips(n) == 64);
    for (int i = 0; i < 100; i++) {
        ovs_assert(by_ip(t, ip4(i)) == (i == 0 || i > 36 ? n : NULL));
    }
    ipoib_neigh_table_destroy(t);
}

struct walk_aux {
    size_t n;
    struct ipoib_neigh_table *remove;
};

static void
walk_cb(struct ipoib_neigh *neigh, void *aux_)
{
    struct walk_aux *aux = aux_;

    aux->n++;
    if (aux->remove) {
        ipoib_neigh_remove(aux->remove, neigh);
    }
}

static void
check_neigh_rounds(void)
{
    enum { N = 3000 };
    struct ipoib_neigh_table *t = new_table(N);
    long long int now = 1000 * 1000;
    struct walk_aux aux = { 0, NULL };
    size_t pos = 0;

    ovs_assert(!ipoib_neigh_walk(t, &pos, 10, walk_cb, &aux));
    ovs_assert(!ipoib_neigh_age(t, now, 10, 10));
    for (int i = 0; i < N; i++) {
        own(learn(t, make_addr(GUID + i / 7, 0x100 + i), NULL, 1 + i % 50, now,
                  IPOIB_NEIGH_NEW));
    }

    /* A third is sent to, a third is heard, the others go; each call does
     * its share. */
    for (int i = 0; i < N; i++) {
        struct ipoib_addr addr = make_addr(GUID + i / 7, 0x100 + i);

        if (i % 3 == 0) {
            ipoib_neigh_mark_used(ipoib_neigh_fast(t, by_addr(t, &addr)->slot),
                                  now / 1000 + 50);
        } else if (i % 3 == 1) {
            learn(t, addr, NULL, 0, now + 50000, 0);
        }
    }
    now += 60000;
    for (int i = 0; i < 10; i++) {
        ovs_assert(ipoib_neigh_age(t, now, 60000, N / 10) == N / 30);
    }
    ovs_assert(ipoib_neigh_table_count(t) == N / 3 * 2);
    ovs_assert(!ipoib_neigh_age(t, now, 60000, N * 10));
    for (int i = 0; i < N; i++) {
        struct ipoib_addr addr = make_addr(GUID + i / 7, 0x100 + i);

        ovs_assert(!by_addr(t, &addr) == (i % 3 == 2));
    }

    for (int rounds = 1; ipoib_neigh_walk(t, &pos, 100, walk_cb, &aux);
         rounds++) {
        ovs_assert(rounds < N / 100);
    }
    ovs_assert(aux.n == N / 3 * 2 && pos == N);
    pos = 0;
    aux.remove = t;
    ipoib_neigh_walk(t, &pos, N, walk_cb, &aux);
    ovs_assert(!ipoib_neigh_table_count(t));

    /* A late reader marks one that has gone, which slows down one pass. */
    struct ipoib_neigh_fast *gone = ipoib_neigh_fast(t, 5);
    uint32_t used;

    ipoib_neigh_mark_used(gone, now / 1000);
    ovs_assert(!ipoib_neigh_age(t, now + 120 * 1000, 60000, N));
    atomic_read_relaxed(&gone->used, &used);
    ovs_assert(used == UINT32_MAX);
    ipoib_neigh_table_destroy(t);
}

/* Each goes in the very second in which it has to, also if it was used once
 * more meanwhile, and though most passes need not look at all. */
static void
check_neigh_ages(void)
{
    enum { N = 2500, IDLE = 60, START = 1000 };
    struct ipoib_neigh_table *t = new_table(N);
    struct ipoib_neigh *neighs[N];
    uint32_t due[N];
    int n_left = N;

    for (int i = 0; i < N; i++) {
        neighs[i] = own(learn(t, make_addr(GUID + i, 0x100 + i), NULL,
                              1 + i % 50, (START + i % 7) * 1000LL,
                              IPOIB_NEIGH_NEW));
        due[i] = START + i % 7 + IDLE;
    }
    for (uint32_t now = START + 7; n_left; now++) {
        int n_due = 0;

        for (int i = 0; i < N; i++) {
            if (due[i] > now && (now + i) % 97 == 0 && now < START + 200) {
                ipoib_neigh_mark_used(ipoib_neigh_fast(t, neighs[i]->slot),
                                      now);
                due[i] = now + IDLE;
            }
            n_due += due[i] == now;
        }
        ovs_assert(ipoib_neigh_age(t, now * 1000LL, IDLE * 1000, N) == n_due);
        n_left -= n_due;
        ovs_assert(ipoib_neigh_table_count(t) == n_left);
        ovs_assert(now < START + 200 + IDLE);
    }
    ipoib_neigh_table_destroy(t);
}

/* Hosts. */

static size_t n_hosts_removed;
static uint32_t last_host_qpn;

static void
host_removed_cb(void *aux, struct ipoib_host *host)
{
    ovs_assert(aux == &n_hosts_removed);
    n_hosts_removed++;
    last_host_qpn = host->qpn;
}

static const struct ipoib_host_ops host_ops = { .removed = host_removed_cb };

static struct ipoib_host *
learn_host(struct ipoib_host_table *t, uint64_t mac, uint16_t vlan,
           const struct in6_addr *ip, long long int now, unsigned int expected)
{
    unsigned int changes;
    struct eth_addr ea;

    eth_addr_from_uint64(mac, &ea);
    struct ipoib_host *host = ipoib_host_learn(t, ea, vlan, ip, now, &changes);
    ovs_assert(changes == expected);
    ovs_assert(host->heard == now && ipoib_host_find(t, ea, vlan) == host);
    return host;
}

static struct ipoib_host *
host_by_qpn(const struct ipoib_host_table *t, uint64_t qpn)
{
    uint32_t slot;

    ipoib_host_by_qpn(t, &qpn, 1, &slot);
    return ipoib_host_of_slot(t, slot);
}

static struct ipoib_host *
host_by_ip(const struct ipoib_host_table *t, struct in6_addr ip)
{
    struct ipoib_host *host = ipoib_host_of_slot(t, ipoib_host_by_ip(t, &ip));

    ovs_assert(host == ipoib_host_find_ip(t, &ip));
    return host;
}

static void
host_walk_cb(struct ipoib_host *host, void *n_)
{
    size_t *n = n_;

    ovs_assert(host->mac.ea[0] == 2);
    ++*n;
}

static void
check_hosts(void)
{
    const uint64_t mac = UINT64_C(0x020000000001);
    struct ipoib_host_table *t = ipoib_host_table_create(4, &host_ops,
                                                         &n_hosts_removed);
    struct in6_addr a = ip4(1), b = ip6(1);
    unsigned int new = IPOIB_HOST_NEW;
    long long int now = 100000;

    struct ipoib_host *h = learn_host(t, mac, 0, &a, now,
                                      new | IPOIB_HOST_NEW_IP);
    ovs_assert(!h->qp && !h->qpn);
    learn_host(t, mac, 0, &b, now, IPOIB_HOST_NEW_IP);
    learn_host(t, mac, 0, &in6addr_any, now, 0);
    ovs_assert(learn_host(t, mac, 0, NULL, now, 0) == h && h->n_ips == 2);
    struct ipoib_host *v = learn_host(t, mac, 100, NULL, now, new);
    ovs_assert(v != h && ipoib_host_table_count(t) == 2);

    /* QPNs. */
    ovs_assert(!host_by_qpn(t, 0x100) && !host_by_qpn(t, 0));
    ipoib_host_set_qpn(t, h, 0x100, false);
    ovs_assert(host_by_qpn(t, 0x100) == h && h->qpn == 0x100);
    ipoib_host_set_qpn(t, h, 0x101, false);
    ovs_assert(host_by_qpn(t, 0x101) == h && !host_by_qpn(t, 0x100));
    ipoib_host_set_qpn(t, h, 0x50, true);
    ovs_assert(!host_by_qpn(t, 0x101) && !host_by_qpn(t, 0x50));
    ovs_assert(h->shares_qp && h->qpn == 0x50 && host_by_ip(t, a) == h);
    ipoib_host_set_qpn(t, h, 0x101, false);
    ovs_assert(!h->shares_qp && host_by_qpn(t, 0x101) == h);
    ipoib_host_set_qpn(t, v, 0x101, false); /* 'h' was not asked. */
    ipoib_host_set_qpn(t, h, 0, false);
    ovs_assert(host_by_qpn(t, 0x101) == v && !h->qpn);
    ipoib_host_set_router(t, h, true);

    struct ipoib_host_fast *fast = ipoib_host_fast(t, h->slot);
    ovs_assert(fast->mac == mac && !fast->vlan && fast->is_router);
    ovs_assert(h->is_router && ipoib_host_fast(t, v->slot)->vlan == 100);

    /* Seen to be a router, whatever it says. */
    ipoib_host_set_router(t, h, false);
    ovs_assert(!fast->is_router && !ipoib_host_routes(h));
    ipoib_host_set_forwards(t, h);
    ovs_assert(fast->is_router && ipoib_host_routes(h));
    ipoib_host_set_router(t, h, true);
    ipoib_host_set_router(t, h, false);
    ovs_assert(fast->is_router && ipoib_host_routes(h) && !h->is_router);

    /* Further QPNs. */
    ipoib_host_add_qpn(t, h, 0x200);
    ovs_assert(host_by_qpn(t, 0x200) == h && !h->qpn);
    ipoib_host_add_qpn(t, v, 0x200);
    ipoib_host_del_qpn(t, h, 0x200);
    ovs_assert(host_by_qpn(t, 0x200) == v);
    ipoib_host_del_qpn(t, v, 0x200);
    ovs_assert(!host_by_qpn(t, 0x200));

    /* Addresses move. */
    learn_host(t, mac, 100, &a, now, IPOIB_HOST_MOVED_IP);
    ovs_assert(host_by_ip(t, a) == v && host_by_ip(t, b) == h);
    ovs_assert(h->n_ips == 1 && v->n_ips == 1);
    for (int i = 0; i < 100; i++) {
        struct in6_addr ip = ip4(100 + i);

        learn_host(t, mac, 0, &ip, now, IPOIB_HOST_NEW_IP);
    }
    ovs_assert(h->n_ips == 64 && !host_by_ip(t, b));
    ovs_assert(host_by_ip(t, ip4(136)) == h && !host_by_ip(t, ip4(135)));
    for (int i = 0; i < 2; i++) {
        struct in6_addr ip = ip4(150);

        ipoib_host_forget_ip(t, &ip);
        ovs_assert(!host_by_ip(t, ip) && h->n_ips == 63);
        ovs_assert(!ipoib_host_find_ip(t, &ip));
    }

    /* Limits, age. */
    ipoib_host_set_qpn(t, h, 0x102, false);
    learn_host(t, mac, 100, NULL, now + 1000, 0);
    learn_host(t, mac + 1, 0, NULL, now + 2000, new);
    learn_host(t, mac + 2, 0, NULL, now + 3000, new);
    ovs_assert(!n_hosts_removed);
    learn_host(t, mac + 3, 0, NULL, now + 4000, new);
    ovs_assert(n_hosts_removed == 1 && last_host_qpn == 0x102);
    ovs_assert(!host_by_qpn(t, 0x102) && !host_by_ip(t, ip4(136)));
    ovs_assert(host_by_qpn(t, 0x101) == v && host_by_ip(t, a) == v);

    size_t pos = 0, n = 0;
    while (ipoib_host_walk(t, &pos, 1, host_walk_cb, &n)) {
        continue;
    }
    ovs_assert(n == 4);
    atomic_store_relaxed(&ipoib_host_fast(t, v->slot)->used,
                         (now + 10000) / 1000);
    ovs_assert(!ipoib_host_age(t, now + 3999, 2000, 0));
    ovs_assert(ipoib_host_age(t, now + 4000, 2000, 100) == 1);
    ovs_assert(ipoib_host_age(t, now + 11999, 2000, 100) == 2);
    ovs_assert(ipoib_host_table_count(t) == 1 && host_by_ip(t, a) == v);
    ovs_assert(ipoib_host_flush(t) == 1 && n_hosts_removed == 5);
    ovs_assert(!host_by_qpn(t, 0x101) && !host_by_ip(t, a));
    learn_host(t, mac, 0, &a, now, new | IPOIB_HOST_NEW_IP);
    ipoib_host_table_destroy(t);
    ovs_assert(n_hosts_removed == 6);
    ipoib_host_table_destroy(NULL);
}

/* The host that was heard least recently goes, not the one that is oldest. */
static void
check_host_lru(void)
{
    const uint64_t mac = UINT64_C(0x020000000001);
    struct ipoib_host_table *t = ipoib_host_table_create(3, NULL, NULL);

    for (int i = 0; i < 3; i++) {
        learn_host(t, mac + i, 0, NULL, 1000 + i, IPOIB_HOST_NEW);
    }
    learn_host(t, mac, 0, NULL, 2000, 0);
    learn_host(t, mac + 3, 0, NULL, 2000, IPOIB_HOST_NEW);
    learn_host(t, mac, 0, NULL, 2000, 0);
    learn_host(t, mac + 1, 0, NULL, 2000, IPOIB_HOST_NEW);
    learn_host(t, mac + 3, 0, NULL, 2000, 0);
    ovs_assert(ipoib_host_table_count(t) == 3);
    ipoib_host_table_destroy(t);
}

/* Who makes up neighbours or hosts takes no more than a part of the table. */
static void
check_shares(void)
{
    struct ipoib_neigh_table *t = ipoib_neigh_table_create(PKEY, 80, NULL,
                                                           NULL);
    struct ipoib_host_table *h = ipoib_host_table_create(80, NULL, NULL);
    struct ipoib_host *host;
    unsigned int changes;
    long long int now = 100000;

    for (int i = 0; i < 60; i++) {
        struct ipoib_addr addr = make_addr(GUID + 1 + i, 0x100);
        struct eth_addr mac = { .ea = { 2, 0, 0, 0, 0, i } };

        ovs_assert(ipoib_neigh_learn(t, &addr, NULL, 100 + i, now, &changes));
        ipoib_host_set_source(h, i);
        ovs_assert(ipoib_host_learn(h, mac, 0, NULL, now, &changes));
    }
    ipoib_host_set_source(h, 1000);
    for (int i = 0; i < 10000; i++) {
        struct ipoib_addr addr = make_addr(0x77000000 + i, 0x200 + i);
        struct eth_addr mac = { .ea = { 6, 0, 0, 0, i >> 8, i } };

        now++;
        ovs_assert(ipoib_neigh_learn(t, &addr, NULL, 7, now, &changes));
        ovs_assert(ipoib_host_learn(h, mac, 0, NULL, now, &changes));
        ovs_assert(ipoib_neigh_find(t, &addr));
        ovs_assert(ipoib_host_find(h, mac, 0));
    }
    ovs_assert(ipoib_neigh_table_count(t) == 80);
    ovs_assert(ipoib_host_table_count(h) == 80);
    for (int i = 0; i < 60; i++) {
        struct ipoib_addr addr = make_addr(GUID + 1 + i, 0x100);
        struct eth_addr mac = { .ea = { 2, 0, 0, 0, 0, i } };

        ovs_assert(ipoib_neigh_find(t, &addr));
        ovs_assert(ipoib_host_find(h, mac, 0));
    }

    /* Others get what the former has beyond its share. */
    for (int i = 0; i < 10; i++) {
        struct eth_addr mac = { .ea = { 2, 0, 0, 0, 1, i } };

        ipoib_host_set_source(h, 2000 + i);
        ovs_assert(ipoib_host_learn(h, mac, 0, NULL, now + 1, &changes));
    }
    /* A host that moves to another port counts there. */
    ipoib_host_set_source(h, 3000);
    struct eth_addr mover = { .ea = { 2, 0, 0, 0, 1, 0 } };
    host = ipoib_host_learn(h, mover, 0, NULL, now, &changes);
    ovs_assert(host && !changes && host->source == 3000);
    ipoib_host_table_destroy(h);
    ipoib_neigh_table_destroy(t);
}

static void
test_ipoib_tables_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    check_pages();
    check_table_basics();
    check_table_keys();
    check_index();
    check_index_churn();
    check_slots();
    check_slots_many();
    check_neigh_basics();
    check_neigh_lids();
    check_neigh_reborn();
    check_neigh_more();
    check_neigh_lists();
    check_neigh_collisions();
    check_neigh_limits();
    check_neigh_rounds();
    check_neigh_ages();
    check_hosts();
    check_host_lru();
    check_shares();
}

OVSTEST_REGISTER("test-ipoib-tables", test_ipoib_tables_main);
