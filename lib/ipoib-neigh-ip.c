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

/* Neighbours: IP addresses, and the part of a neighbour that few have. */

#include <config.h>
#include "ipoib-neigh.h"

#include <stdlib.h>
#include <string.h>

#include "ipoib-neigh-table.h"
#include "ipoib-table.h"
#include "packets.h"
#include "util.h"

/* The part that few have. */

struct ipoib_neigh_more *
ipoib_neigh_more(struct ipoib_neigh *neigh)
{
    if (!neigh->more) {
        neigh->more = xzalloc(sizeof *neigh->more);
        ovs_list_init(&neigh->more->aliases);
        ovs_list_init(&neigh->more->wait);
    }
    return neigh->more;
}

void
ipoib_neigh_trim(struct ipoib_neigh *neigh)
{
    struct ipoib_neigh_more *more = neigh->more;

    if (more && !more->n_ips && ovs_list_is_empty(&more->aliases)
        && !more->prio && !more->n_wait && !more->n_foreign) {
        free(more->ips);
        free(more);
        neigh->more = NULL;
    }
}

/* A neighbour's IP addresses. */

size_t
ipoib_neigh_n_ips(const struct ipoib_neigh *neigh)
{
    return (ipv6_addr_is_set(&neigh->ip)
            + (neigh->more ? neigh->more->n_ips : 0));
}

const struct in6_addr *
ipoib_neigh_ip(const struct ipoib_neigh *neigh, size_t i)
{
    return i ? &neigh->more->ips[i - 1] : &neigh->ip;
}

/* Index of 'ip' among them; their number if it is not. */
static size_t
find_ip(const struct ipoib_neigh *neigh, const struct in6_addr *ip)
{
    size_t n = ipoib_neigh_n_ips(neigh);
    size_t i;

    for (i = 0; i < n; i++) {
        if (ipv6_addr_equals(ipoib_neigh_ip(neigh, i), ip)) {
            break;
        }
    }
    return i;
}

static void
push_ip(struct ipoib_neigh *neigh, const struct in6_addr *ip)
{
    if (ipv6_addr_is_set(&neigh->ip)) {
        struct ipoib_neigh_more *more = ipoib_neigh_more(neigh);

        if (more->n_ips == more->allocated_ips) {
            more->ips = x2nrealloc(more->ips, &more->allocated_ips,
                                   sizeof *more->ips);
        }
        memmove(more->ips + 1, more->ips, more->n_ips * sizeof *more->ips);
        more->ips[0] = neigh->ip;
        more->n_ips++;
    }
    neigh->ip = *ip;
}

/* Takes the one with index 'i' out of the list, to be given to another one or
 * back to be the first. */
static void
take_ip(struct ipoib_neigh *neigh, size_t i)
{
    struct ipoib_neigh_more *more = neigh->more;

    if (!more || !more->n_ips) {
        neigh->ip = in6addr_any;
        return;
    }
    if (!i) {
        neigh->ip = more->ips[0];
        i = 1;
    }
    more->n_ips--;
    memmove(&more->ips[i - 1], &more->ips[i],
            (more->n_ips - (i - 1)) * sizeof *more->ips);
    ipoib_neigh_trim(neigh);
}

/* The index.
 *
 * Two IPv6 addresses may have the same key, which nobody can bring about.
 * Then the latest one is found, and the other one is as if it were not. */

static uint64_t
ip_key(const struct ipoib_neigh_table *t, const struct in6_addr *ip)
{
    return ipoib_table_key_ip(ip, t->key_basis);
}

uint32_t
ipoib_neigh_by_ip(const struct ipoib_neigh_table *t, const struct in6_addr *ip)
{
    return ipoib_table_lookup(t->ips, ip_key(t, ip));
}

struct ipoib_neigh *
ipoib_neigh_find_ip(const struct ipoib_neigh_table *t,
                    const struct in6_addr *ip)
{
    struct ipoib_neigh *neigh = ipoib_neigh_of_slot(t,
                                                    ipoib_neigh_by_ip(t, ip));

    return (neigh && find_ip(neigh, ip) < ipoib_neigh_n_ips(neigh)
            ? neigh : NULL);
}

static void
delete_ip(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh, size_t i)
{
    const struct in6_addr *ip = ipoib_neigh_ip(neigh, i);

    if (ipoib_neigh_by_ip(t, ip) == neigh->slot) {
        ipoib_table_remove(t->ips, ip_key(t, ip));
    }
    take_ip(neigh, i);
}

void
ipoib_neigh_give_ip(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                    struct ipoib_neigh *owner, const struct in6_addr *ip)
{
    if (owner != neigh) {
        ipoib_table_insert(t->ips, ip_key(t, ip), neigh->slot);
    } else if (ipv6_addr_equals(ip, &neigh->ip)) {
        return;
    }
    if (owner) {
        take_ip(owner, find_ip(owner, ip));
    }
    push_ip(neigh, ip);
    while (ipoib_neigh_n_ips(neigh) > IPOIB_NEIGH_MAX_IPS) {
        delete_ip(t, neigh, ipoib_neigh_n_ips(neigh) - 1);
    }
}

void
ipoib_neigh_give_ips(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh,
                     struct ipoib_neigh *owner)
{
    size_t n;

    /* From the oldest on, so that their order stays. */
    while ((n = ipoib_neigh_n_ips(owner))) {
        struct in6_addr ip = *ipoib_neigh_ip(owner, n - 1);

        ipoib_neigh_give_ip(t, neigh, owner, &ip);
    }
}

void
ipoib_neigh_remove_ips(struct ipoib_neigh_table *t, struct ipoib_neigh *neigh)
{
    size_t n;

    while ((n = ipoib_neigh_n_ips(neigh))) {
        delete_ip(t, neigh, n - 1);
    }
}

void
ipoib_neigh_forget_ip(struct ipoib_neigh_table *t, const struct in6_addr *ip)
{
    struct ipoib_neigh *neigh = ipoib_neigh_find_ip(t, ip);

    if (neigh) {
        delete_ip(t, neigh, find_ip(neigh, ip));
    }
}
