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
#include "ipoib-snoop.h"

#include "coverage.h"
#include "hash.h"
#include "openvswitch/hmap.h"
#include "openvswitch/list.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/token-bucket.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

COVERAGE_DEFINE(ipoib_snoop_too_many);
COVERAGE_DEFINE(ipoib_snoop_expired);
COVERAGE_DEFINE(ipoib_snoop_evicted);
COVERAGE_DEFINE(ipoib_snoop_fast_leave);

/* Members of all groups together, at most. */
#define MAX_MEMBERS (16 * IPOIB_SNOOP_MAX_GROUPS)

/* Sources of a host that are remembered; one with more listens to all. */
#define MAX_SOURCES 64

/* Where we ask, we do so this often, with this pause, in ms; and at most so
 * often a second for all groups together. */
#define N_ASKS 2
#define ASK_PAUSE 1000
#define ASK_RATE 50

/* Searches for a group to take away from who has most, a second. */
#define EVICTION_RATE 100

/* Time for the answers to a query to get here, in ms, beyond what hosts are
 * given. */
#define ANSWER_LATENCY 1000

struct snoop_group {
    struct hmap_node node;      /* In ipoib_snoop 'groups'. */
    struct in6_addr ip;
    struct ovs_list members;    /* Of struct snoop_member. */
    long long int v1_until;     /* Hosts with IGMPv1, which do not leave. */
    long long int old_until;    /* Hosts that keep silent if others report. */

    /* Without members. */
    struct ovs_list empty;      /* In ipoib_snoop 'empty'. */
    long long int expires;      /* When it ends. */
    int n_asks;                 /* Still to be made. */
    long long int next_ask;
};

struct snoop_host {
    struct hmap_node node;      /* In ipoib_snoop 'hosts', by MAC. */
    struct eth_addr mac;
    struct ovs_list members;    /* Of struct snoop_member, not empty. */
    size_t n;
};

struct snoop_member {
    struct ovs_list node;       /* In 'group->members'. */
    struct ovs_list host_node;  /* In 'host->members'. */
    struct hmap_node hash_node; /* In ipoib_snoop 'members', by both. */
    struct ovs_list heard_node; /* In 'heard' of its family, or empty if it is
                                 * only assumed. */
    struct snoop_group *group;
    struct snoop_host *host;
    long long int heard;        /* Last report, 0: none. */
    bool exclude;               /* Filter mode EXCLUDE; or INCLUDE, with */
    size_t n_sources;           /* these. */
    size_t allocated_sources;
    struct in6_addr *sources;
};

/* IGMP, or MLD. */
struct snoop_family {
    struct ipoib_querier querier;
    struct ovs_list heard;      /* Members, in the order of their reports. */
    long long int complete;     /* When all that are there have reported;
                                 * LLONG_MAX: were not asked. */
};

struct ipoib_snoop {
    const struct ipoib_snoop_ops *ops;
    void *aux;
    struct hmap groups;
    struct hmap hosts;
    struct hmap members;        /* Of all groups. */
    uint32_t basis;             /* Of hashes of MACs. */
    struct snoop_family families[2];
    struct ovs_list empty;      /* Groups without members. */
    struct token_bucket asks;
    struct token_bucket evictions;
    size_t max_groups, max_host_groups;
    uint64_t n_refused;
};

struct ipoib_snoop *
ipoib_snoop_create(const struct ipoib_snoop_ops *ops, void *aux)
{
    struct ipoib_snoop *snoop = xzalloc(sizeof *snoop);

    snoop->ops = ops;
    snoop->aux = aux;
    snoop->basis = random_uint32();
    snoop->max_groups = IPOIB_SNOOP_MAX_GROUPS;
    snoop->max_host_groups = IPOIB_SNOOP_MAX_HOST_GROUPS;
    hmap_init(&snoop->groups);
    hmap_init(&snoop->hosts);
    hmap_init(&snoop->members);
    ovs_list_init(&snoop->empty);
    /* Tokens are milliseconds. */
    token_bucket_init(&snoop->asks, 1, 1000);
    token_bucket_init(&snoop->evictions, 1, 1000);
    for (int i = 0; i < ARRAY_SIZE(snoop->families); i++) {
        ipoib_querier_init(&snoop->families[i].querier);
        ovs_list_init(&snoop->families[i].heard);
        snoop->families[i].complete = LLONG_MAX;
    }
    return snoop;
}

static void
member_free(struct ipoib_snoop *snoop, struct snoop_member *member)
{
    struct snoop_host *host = member->host;

    ovs_list_remove(&member->node);
    ovs_list_remove(&member->host_node);
    ovs_list_remove(&member->heard_node);
    hmap_remove(&snoop->members, &member->hash_node);
    free(member->sources);
    free(member);
    if (!--host->n) {
        hmap_remove(&snoop->hosts, &host->node);
        free(host);
    }
}

static void
group_free(struct ipoib_snoop *snoop, struct snoop_group *group)
{
    struct snoop_member *member;

    LIST_FOR_EACH_SAFE (member, node, &group->members) {
        member_free(snoop, member);
    }
    ovs_list_remove(&group->empty);
    hmap_remove(&snoop->groups, &group->node);
    free(group);
}

void
ipoib_snoop_destroy(struct ipoib_snoop *snoop)
{
    struct snoop_group *group;

    if (snoop) {
        HMAP_FOR_EACH_SAFE (group, node, &snoop->groups) {
            group_free(snoop, group);
        }
        hmap_destroy(&snoop->groups);
        hmap_destroy(&snoop->hosts);
        hmap_destroy(&snoop->members);
        free(snoop);
    }
}

void
ipoib_snoop_set_limits(struct ipoib_snoop *snoop, size_t max_groups,
                       size_t max_host_groups)
{
    snoop->max_groups = MIN(max_groups, IPOIB_SNOOP_MAX_GROUPS);
    snoop->max_host_groups = max_host_groups;
}

uint64_t
ipoib_snoop_n_refused(const struct ipoib_snoop *snoop)
{
    return snoop->n_refused;
}

size_t
ipoib_snoop_n_groups(const struct ipoib_snoop *snoop)
{
    return hmap_count(&snoop->groups);
}

size_t
ipoib_snoop_n_members(const struct ipoib_snoop *snoop)
{
    return hmap_count(&snoop->members);
}

const struct ipoib_querier *
ipoib_snoop_querier(const struct ipoib_snoop *snoop, bool v6)
{
    return &snoop->families[v6].querier;
}

void
ipoib_snoop_for_each(const struct ipoib_snoop *snoop,
                     void (*cb)(const struct in6_addr *, struct eth_addr,
                                bool exclude, size_t n_sources,
                                long long int heard, void *aux), void *aux)
{
    const struct snoop_member *member;

    HMAP_FOR_EACH (member, hash_node, &snoop->members) {
        cb(&member->group->ip, member->host->mac, member->exclude,
           member->n_sources, member->heard, aux);
    }
}

static struct snoop_family *
family_of(struct ipoib_snoop *snoop, const struct in6_addr *ip)
{
    return &snoop->families[!IN6_IS_ADDR_V4MAPPED(ip)];
}


/* Groups and members. */

static struct snoop_group *
group_find(const struct ipoib_snoop *snoop, const struct in6_addr *ip)
{
    struct snoop_group *group;

    HMAP_FOR_EACH_WITH_HASH (group, node, hash_bytes(ip, sizeof *ip, 0),
                             &snoop->groups) {
        if (ipv6_addr_equals(&group->ip, ip)) {
            return group;
        }
    }
    return NULL;
}

static uint32_t
mac_hash(const struct ipoib_snoop *snoop, struct eth_addr mac)
{
    return hash_mac(mac, 0, snoop->basis);
}

static struct snoop_host *
host_find(const struct ipoib_snoop *snoop, struct eth_addr mac)
{
    struct snoop_host *host;

    HMAP_FOR_EACH_WITH_HASH (host, node, mac_hash(snoop, mac),
                             &snoop->hosts) {
        if (eth_addr_equals(host->mac, mac)) {
            return host;
        }
    }
    return NULL;
}

static uint32_t
member_hash(const struct snoop_host *host, const struct snoop_group *group)
{
    return hash_2words(host->node.hash, group->node.hash);
}

/* The host 'mac' as a member of 'group'. */
static struct snoop_member *
member_find(const struct ipoib_snoop *snoop, const struct snoop_group *group,
            struct eth_addr mac)
{
    const struct snoop_host *host = host_find(snoop, mac);
    struct snoop_member *member;

    if (host) {
        HMAP_FOR_EACH_WITH_HASH (member, hash_node, member_hash(host, group),
                                 &snoop->members) {
            if (member->host == host && member->group == group) {
                return member;
            }
        }
    }
    return NULL;
}

static struct snoop_group *
group_create(struct ipoib_snoop *snoop, const struct in6_addr *ip)
{
    struct snoop_group *group = xzalloc(sizeof *group);

    group->ip = *ip;
    ovs_list_init(&group->members);
    ovs_list_init(&group->empty);
    hmap_insert(&snoop->groups, &group->node, hash_bytes(ip, sizeof *ip, 0));
    return group;
}

/* Adds the host 'mac', which is not there, to 'group'. */
static struct snoop_member *
member_create(struct ipoib_snoop *snoop, struct snoop_group *group,
              struct eth_addr mac)
{
    struct snoop_member *member = xzalloc(sizeof *member);
    struct snoop_host *host = host_find(snoop, mac);

    if (!host) {
        host = xzalloc(sizeof *host);
        host->mac = mac;
        ovs_list_init(&host->members);
        hmap_insert(&snoop->hosts, &host->node, mac_hash(snoop, mac));
    }
    host->n++;
    member->group = group;
    member->host = host;
    ovs_list_push_back(&group->members, &member->node);
    ovs_list_push_back(&host->members, &member->host_node);
    ovs_list_init(&member->heard_node);
    hmap_insert(&snoop->members, &member->hash_node,
                member_hash(host, group));
    ovs_list_remove(&group->empty);
    ovs_list_init(&group->empty);
    return member;
}

static void
group_end(struct ipoib_snoop *snoop, struct snoop_group *group)
{
    struct in6_addr ip = group->ip;

    group_free(snoop, group);
    snoop->ops->left(snoop->aux, &ip);
}

static struct snoop_host *
host_largest(const struct ipoib_snoop *snoop)
{
    struct snoop_host *host, *largest = NULL;

    HMAP_FOR_EACH (host, node, &snoop->hosts) {
        if (!largest || host->n > largest->n) {
            largest = host;
        }
    }
    return largest;
}

/* There are as many groups as there may be, and a host that has 'n' wants
 * another one: takes the oldest away that only the host with most groups has
 * reported.  So who reports many groups, in whatever order, loses its own.
 * Returns false if there is none. */
static bool
group_evict(struct ipoib_snoop *snoop, size_t n)
{
    struct snoop_member *member, *victim = NULL;
    struct snoop_host *host;

    if (!token_bucket_withdraw(&snoop->evictions, 1000 / EVICTION_RATE)) {
        return false;
    }
    host = host_largest(snoop);
    if (!host || host->n <= n + 1) {
        return false;
    }
    LIST_FOR_EACH (member, host_node, &host->members) {
        if (member->heard && ovs_list_is_short(&member->group->members)
            && (!victim || member->heard < victim->heard)) {
            victim = member;
        }
    }
    if (victim) {
        COVERAGE_INC(ipoib_snoop_evicted);
        group_end(snoop, victim->group);
    }
    return victim != NULL;
}

/* The host 'mac' as a member of the group 'ip', which it is made if need be.
 * NULL if there is no room. */
static struct snoop_member *
member_get(struct ipoib_snoop *snoop, const struct in6_addr *ip,
           struct eth_addr mac)
{
    struct snoop_group *group = group_find(snoop, ip);
    struct snoop_member *member = group ? member_find(snoop, group, mac)
                                        : NULL;
    const struct snoop_host *host;
    bool is_new = !group;
    size_t n;

    if (member) {
        return member;
    }
    host = host_find(snoop, mac);
    n = host ? host->n : 0;
    if (n >= snoop->max_host_groups
        || hmap_count(&snoop->members) >= MAX_MEMBERS
        || (is_new && hmap_count(&snoop->groups) >= snoop->max_groups
            && !group_evict(snoop, n))) {
        COVERAGE_INC(ipoib_snoop_too_many);
        snoop->n_refused++;
        return NULL;
    }
    if (is_new) {
        group = group_create(snoop, ip);
    }
    member = member_create(snoop, group, mac);
    if (is_new) {
        snoop->ops->joined(snoop->aux, ip);
    }
    return member;
}

/* 'member' has reported. */
static void
member_heard(struct ipoib_snoop *snoop, struct snoop_member *member,
             long long int now)
{
    member->heard = now;
    ovs_list_remove(&member->heard_node);
    ovs_list_push_back(&family_of(snoop, &member->group->ip)->heard,
                       &member->heard_node);
}

/* 'group' has no member any more that is known. */
static void
group_emptied(struct ipoib_snoop *snoop, struct snoop_group *group,
              long long int now)
{
    struct snoop_family *family = family_of(snoop, &group->ip);

    if (now < group->v1_until) {
        /* Hosts with IGMPv1 answer to general queries only. */
        group->expires = group->v1_until;
    } else if (now >= family->complete && now >= group->old_until) {
        /* All that are there have been asked, and each speaks for itself. */
        COVERAGE_INC(ipoib_snoop_fast_leave);
        group_end(snoop, group);
        return;
    } else if (ipoib_querier_is_present(&family->querier, now)) {
        group->expires = now
                         + ipoib_querier_last_member_time(&family->querier);
    } else {
        group->expires = now + IPOIB_SNOOP_LAST_MEMBER;
        group->n_asks = snoop->ops->ask ? N_ASKS : 0;
        group->next_ask = now;
    }
    ovs_list_push_back(&snoop->empty, &group->empty);
}

/* Takes 'member' out of its group. */
static void
member_remove(struct ipoib_snoop *snoop, struct snoop_member *member,
              long long int now)
{
    struct snoop_group *group = member->group;

    member_free(snoop, member);
    if (ovs_list_is_empty(&group->members)) {
        group_emptied(snoop, group, now);
    }
}

void
ipoib_snoop_report(struct ipoib_snoop *snoop, const struct in6_addr *ip,
                   struct eth_addr mac, int version, long long int now)
{
    struct snoop_member *member = member_get(snoop, ip, mac);
    struct snoop_group *group;
    long long int until;

    if (member) {
        group = member->group;
        until = now + ipoib_querier_membership_interval(
                          &family_of(snoop, ip)->querier);
        member->exclude = true;
        member_heard(snoop, member, now);
        group->old_until = MAX(group->old_until, until);
        if (version == 1) {
            group->v1_until = MAX(group->v1_until, until);
        }
    }
}

void
ipoib_snoop_assume(struct ipoib_snoop *snoop, const struct in6_addr *ip,
                   struct eth_addr mac)
{
    struct snoop_member *member = member_get(snoop, ip, mac);

    if (member) {
        member->exclude = true;
    }
}

void
ipoib_snoop_leave(struct ipoib_snoop *snoop, const struct in6_addr *ip,
                  struct eth_addr mac, long long int now)
{
    struct snoop_group *group = group_find(snoop, ip);
    struct snoop_member *member = group ? member_find(snoop, group, mac)
                                        : NULL;

    if (member) {
        member_remove(snoop, member, now);
    }
}

void
ipoib_snoop_host_gone(struct ipoib_snoop *snoop, struct eth_addr mac,
                      long long int now)
{
    struct snoop_host *host;

    while ((host = host_find(snoop, mac))) {
        member_remove(snoop, CONTAINER_OF(ovs_list_front(&host->members),
                                          struct snoop_member, host_node),
                      now);
    }
}


/* Filters. */

static struct in6_addr
source_at(const uint8_t *sources, size_t i, size_t source_len)
{
    struct in6_addr ip;

    if (source_len == sizeof ip) {
        memcpy(&ip, sources + i * source_len, sizeof ip);
    } else {
        ovs_be32 ip4;

        memcpy(&ip4, sources + i * source_len, sizeof ip4);
        ip = in6_addr_mapped_ipv4(ip4);
    }
    return ip;
}

/* Position of 'source' in the list of 'member', 'n_sources' if it is not
 * there. */
static size_t
member_find_source(const struct snoop_member *member,
                   const struct in6_addr *source)
{
    size_t i;

    for (i = 0; i < member->n_sources; i++) {
        if (ipv6_addr_equals(&member->sources[i], source)) {
            break;
        }
    }
    return i;
}

static void
member_exclude(struct snoop_member *member)
{
    member->exclude = true;
    member->n_sources = 0;
}

static void
member_allow(struct snoop_member *member, const uint8_t *sources, size_t n,
             size_t source_len)
{
    for (size_t i = 0; i < n; i++) {
        struct in6_addr source = source_at(sources, i, source_len);

        if (member_find_source(member, &source) == member->n_sources) {
            if (member->n_sources >= MAX_SOURCES) {
                member_exclude(member);
                return;
            }
            if (member->n_sources >= member->allocated_sources) {
                member->sources = x2nrealloc(member->sources,
                                             &member->allocated_sources,
                                             sizeof *member->sources);
            }
            member->sources[member->n_sources++] = source;
        }
    }
}

static void
member_block(struct snoop_member *member, const uint8_t *sources, size_t n,
             size_t source_len)
{
    for (size_t i = 0; i < n; i++) {
        struct in6_addr source = source_at(sources, i, source_len);
        size_t pos = member_find_source(member, &source);

        if (pos < member->n_sources) {
            member->sources[pos] = member->sources[--member->n_sources];
        }
    }
}

/* 'type' makes a host a member that was none. */
static bool
record_joins(uint8_t type, size_t n_sources)
{
    return (type == IGMPV3_MODE_IS_EXCLUDE
            || type == IGMPV3_CHANGE_TO_EXCLUDE_MODE
            || (n_sources && (type == IGMPV3_MODE_IS_INCLUDE
                              || type == IGMPV3_CHANGE_TO_INCLUDE_MODE
                              || type == IGMPV3_ALLOW_NEW_SOURCES)));
}

/* (RFC 3376, 6.4; RFC 3810, 7.4; but of one host.) */
void
ipoib_snoop_record(struct ipoib_snoop *snoop, const struct in6_addr *ip,
                   struct eth_addr mac, uint8_t type, const uint8_t *sources,
                   size_t n_sources, size_t source_len, long long int now)
{
    struct snoop_group *group = group_find(snoop, ip);
    struct snoop_member *member = group ? member_find(snoop, group, mac)
                                        : NULL;

    if (!member && record_joins(type, n_sources)) {
        member = member_get(snoop, ip, mac);
    }
    if (!member) {
        return;
    }
    member_heard(snoop, member, now);
    switch (type) {
    case IGMPV3_MODE_IS_EXCLUDE:
    case IGMPV3_CHANGE_TO_EXCLUDE_MODE:
        member_exclude(member);
        return;
    case IGMPV3_CHANGE_TO_INCLUDE_MODE:
        member->exclude = false;
        member->n_sources = 0;
        member_allow(member, sources, n_sources, source_len);
        break;
    case IGMPV3_MODE_IS_INCLUDE:
        /* To a query for certain sources, a host in mode EXCLUDE tells which
         * of them it listens to. */
        if (!n_sources) {
            member->exclude = false;
            member->n_sources = 0;
        }
        /* Fall through. */
    case IGMPV3_ALLOW_NEW_SOURCES:
        if (!member->exclude) {
            member_allow(member, sources, n_sources, source_len);
        }
        break;
    case IGMPV3_BLOCK_OLD_SOURCES:
        if (!member->exclude) {
            member_block(member, sources, n_sources, source_len);
        }
        break;
    default:
        break;
    }
    if (!member->exclude && !member->n_sources) {
        member_remove(snoop, member, now);
    }
}


/* Queriers and routers. */

void
ipoib_snoop_query(struct ipoib_snoop *snoop, bool v6,
                  const struct ipoib_query *query, bool from_ethernet,
                  long long int now)
{
    struct snoop_family *family = &snoop->families[v6];

    ipoib_querier_heard(&family->querier, query, from_ethernet, now);
    if (query->general && family->complete == LLONG_MAX) {
        family->complete = now + query->max_resp + ANSWER_LATENCY;
    }
}

void
ipoib_snoop_pim_hello(struct ipoib_snoop *snoop, bool v6,
                      long long int holdtime, long long int now)
{
    ipoib_querier_pim(&snoop->families[v6].querier, holdtime, now);
}

bool
ipoib_snoop_has_router(const struct ipoib_snoop *snoop, long long int now)
{
    return (ipoib_querier_has_router(&snoop->families[0].querier, now)
            || ipoib_querier_has_router(&snoop->families[1].querier, now));
}


/* Time. */

/* When the first of the members that were heard of goes, LLONG_MAX if none
 * does.  Without a querier nobody need say anything; and after it has come,
 * everybody has the time to answer it. */
static long long int
family_next_expiry(const struct snoop_family *family, long long int now)
{
    const struct ipoib_querier *querier = &family->querier;
    const struct snoop_member *first;

    if (!ipoib_querier_is_present(querier, now)
        || ovs_list_is_empty(&family->heard)) {
        return LLONG_MAX;
    }
    first = CONTAINER_OF(ovs_list_front(&family->heard), struct snoop_member,
                         heard_node);
    return MAX(first->heard, querier->since)
           + ipoib_querier_membership_interval(querier);
}

static void
family_run(struct ipoib_snoop *snoop, struct snoop_family *family,
           long long int now)
{
    while (now >= family_next_expiry(family, now)) {
        COVERAGE_INC(ipoib_snoop_expired);
        member_remove(snoop, CONTAINER_OF(ovs_list_front(&family->heard),
                                          struct snoop_member, heard_node),
                      now);
    }
}

static void
group_ask(struct ipoib_snoop *snoop, struct snoop_group *group,
          long long int now)
{
    if (group->n_asks && now >= group->next_ask) {
        group->n_asks--;
        group->next_ask = now + ASK_PAUSE;
        if (token_bucket_withdraw(&snoop->asks, 1000 / ASK_RATE)) {
            snoop->ops->ask(snoop->aux, &group->ip);
        }
    }
}

void
ipoib_snoop_run(struct ipoib_snoop *snoop, long long int now)
{
    struct snoop_group *group;

    for (int i = 0; i < ARRAY_SIZE(snoop->families); i++) {
        family_run(snoop, &snoop->families[i], now);
    }
    LIST_FOR_EACH_SAFE (group, empty, &snoop->empty) {
        if (now >= group->expires) {
            group_end(snoop, group);
        } else {
            group_ask(snoop, group, now);
        }
    }
}

void
ipoib_snoop_wait(struct ipoib_snoop *snoop)
{
    struct snoop_group *group;
    long long int now = time_msec();

    for (int i = 0; i < ARRAY_SIZE(snoop->families); i++) {
        long long int next = family_next_expiry(&snoop->families[i], now);

        if (next != LLONG_MAX) {
            poll_timer_wait_until(next);
        }
    }
    LIST_FOR_EACH (group, empty, &snoop->empty) {
        poll_timer_wait_until(group->n_asks
                              ? MIN(group->next_ask, group->expires)
                              : group->expires);
    }
}
