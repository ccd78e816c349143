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

#ifndef IPOIB_SNOOP_QUERIER_H
#define IPOIB_SNOOP_QUERIER_H 1

/* What is known of those who ask hosts for their groups: the querier of a
 * network, whose times everybody goes by, and multicast routers.  One of these
 * for IPv4 (IGMP) and one for IPv6 (MLD).
 *
 * Thread-safety: none (control thread). */

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A query, of IGMP 1, 2 or 3 or MLD 1 or 2.  All times are in ms. */
struct ipoib_query {
    bool general;               /* Asks for all groups; or for */
    struct in6_addr group;      /* this one (IPv4: v4-mapped). */
    bool sourceless;            /* From 0.0.0.0 (IGMP) or :: (MLD): a switch
                                 * that only wants to know. */
    bool timed;                 /* Version 3 of IGMP, 2 of MLD: has */
    unsigned int robustness;    /* this, 0: more than 7, and */
    unsigned int interval;      /* this, 0: not told. */
    unsigned int max_resp;      /* Hosts answer within this time. */
};

/* Parse the query at 'l4_ofs' of the IP packet of 'len' bytes at 'ip'.  False
 * if it is none, or not as it has to be (RFC 3376, 9.1; RFC 3810, 5.1).
 * Checksums were looked at before. */
bool ipoib_query_parse_igmp(const void *ip, size_t len, size_t l4_ofs,
                            struct ipoib_query *);
bool ipoib_query_parse_mld(const void *ip, size_t len, size_t l4_ofs,
                           struct ipoib_query *);
/* The time for which a PIM hello (RFC 7761, 4.9.2) announces its router, in
 * ms; 0: it goes.  Negative if the packet is none. */
long long int ipoib_pim_hello_holdtime(const void *ip, size_t len,
                                       size_t l4_ofs);

struct ipoib_querier {
    long long int since, until; /* There is one in this time.  0: never. */
    long long int router_until; /* A multicast router on Ethernet, by queries
                                 * or */
    long long int pim_until;    /* PIM. */
    unsigned int robustness;
    unsigned int interval;
    unsigned int max_resp;      /* Of general queries. */
    unsigned int last_member;   /* Of queries for one group. */
};

void ipoib_querier_init(struct ipoib_querier *);
/* 'query' came, from Ethernet or from the fabric. */
void ipoib_querier_heard(struct ipoib_querier *, const struct ipoib_query *,
                         bool from_ethernet, long long int now);
/* A PIM hello with that hold time, in ms, came from Ethernet; 0: a router
 * goes. */
void ipoib_querier_pim(struct ipoib_querier *, long long int holdtime,
                       long long int now);
bool ipoib_querier_is_present(const struct ipoib_querier *, long long int now);
bool ipoib_querier_has_router(const struct ipoib_querier *, long long int now);
/* A listener that did not report for this long has gone (RFC 3376, 8.4). */
long long int ipoib_querier_membership_interval(const struct ipoib_querier *);
/* After a leave, others report within this time (RFC 3376, 8.8), with a second
 * for the querier to ask and for its question to get here. */
long long int ipoib_querier_last_member_time(const struct ipoib_querier *);

#endif /* ipoib-snoop-querier.h */
