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
#undef NDEBUG
#include "ipoib-known.h"
#include "ovstest.h"
#include "test-ipoib-fake.h"
#include "util.h"

static struct in6_addr
ip_of(unsigned int i)
{
    return in6_addr_mapped_ipv4(htonl(0x0a000000 | i));
}

static struct eth_addr
mac_of(unsigned int i)
{
    return (struct eth_addr) { .ea = { 2, 0, 0, 0, i >> 8, i } };
}

static void
test_ipoib_known_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    struct ipoib_known *a = ipoib_known_create(0xffff);
    struct ipoib_known *b = ipoib_known_create(0x7fff);
    struct ipoib_known *other = ipoib_known_create(0x8001);
    struct in6_addr ips[IPOIB_KNOWN_MAX_IPS], ip;
    struct eth_addr mac;
    long long int when;

    /* Latest first, each once, and not too many. */
    for (unsigned int i = 0; i < IPOIB_KNOWN_MAX_IPS + 5; i++) {
        ip = ip_of(i);
        ipoib_known_add(a, mac_of(1), &ip, 1000 + i);
        ipoib_known_add(a, mac_of(1), &ip, 1000 + i);
    }
    CHECK_INT(ipoib_known_take(other, mac_of(1), 2000, ips), 0);
    CHECK_INT(ipoib_known_take(a, mac_of(1), 2000, ips), 0);
    CHECK_INT(ipoib_known_take(b, mac_of(2), 2000, ips), 0);
    CHECK_INT(ipoib_known_left(a, &mac, &when), false);
    CHECK_INT(ipoib_known_take(b, mac_of(1), 2000, ips),
              IPOIB_KNOWN_MAX_IPS);
    ip = ip_of(IPOIB_KNOWN_MAX_IPS + 4);
    ovs_assert(ipv6_addr_equals(&ips[0], &ip));

    /* The port that had it gets to know that, once; who took it has it. */
    CHECK_INT(ipoib_known_left(b, &mac, &when), false);
    CHECK_INT(ipoib_known_left(a, &mac, &when), true);
    ovs_assert(eth_addr_equals(mac, mac_of(1)));
    CHECK_INT(when, 2000);
    CHECK_INT(ipoib_known_left(a, &mac, &when), false);
    CHECK_INT(ipoib_known_take(b, mac_of(1), 2000, ips), 0);
    CHECK_INT(ipoib_known_count(), 0);

    /* Of several ports, the one that heard it last knows best. */
    ip = ip_of(1);
    ipoib_known_add(a, mac_of(3), &ip, 3000);
    ip = ip_of(2);
    ipoib_known_add(other, mac_of(3), &ip, 3500);
    ip = ip_of(3);
    ipoib_known_add(b, mac_of(3), &ip, 4000);
    {
        struct ipoib_known *c = ipoib_known_create(0xffff);

        CHECK_INT(ipoib_known_take(c, mac_of(3), 5000, ips), 1);
        ovs_assert(ipv6_addr_equals(&ips[0], &ip));
        CHECK_INT(ipoib_known_left(a, &mac, &when), true);
        CHECK_INT(ipoib_known_left(b, &mac, &when), true);
        CHECK_INT(ipoib_known_left(other, &mac, &when), false);
        ipoib_known_add(c, mac_of(3), &ip, 5000);

        /* What moved to somebody else is not taken. */
        ipoib_known_forget(c, mac_of(3), &ip);
        CHECK_INT(ipoib_known_take(a, mac_of(3), 5000, ips), 0);
        ipoib_known_add(c, mac_of(4), &ip, 6000);
        ipoib_known_add(c, mac_of(5), &ip, 6000);
        ipoib_known_forget(c, mac_of(5), NULL);

        /* A port that goes leaves what it knew, for some time. */
        ipoib_known_destroy(c);
    }
    CHECK_INT(ipoib_known_take(a, mac_of(5), 7000, ips), 0);
    CHECK_INT(ipoib_known_take(a, mac_of(4), 7000, ips), 1);
    ipoib_known_add(b, mac_of(6), &ip, 10000);
    ipoib_known_destroy(b);
    CHECK_INT(ipoib_known_take(a, mac_of(6), 10000 + 20 * 60 * 1000, ips), 0);
    ipoib_known_destroy(a);

    /* However often a port comes and goes, it leaves a host once. */
    size_t n = ipoib_known_count();
    for (unsigned int i = 0; i < 10; i++) {
        struct ipoib_known *c = ipoib_known_create(0xffff);

        ip = ip_of(i);
        ipoib_known_add(c, mac_of(7), &ip, 20000 + i);
        ipoib_known_add(c, mac_of(8), &ip, 20000 + i);
        CHECK_INT(ipoib_known_count(), n + 2 + (i ? 2 : 0));
        ipoib_known_destroy(c);
        CHECK_INT(ipoib_known_count(), n + 2);
    }
    a = ipoib_known_create(0xffff);
    CHECK_INT(ipoib_known_take(a, mac_of(7), 21000, ips), 1);
    ovs_assert(ipv6_addr_equals(&ips[0], &ip));

    /* No more than there is room for; what is old goes. */
    for (unsigned int i = 0; i < 70000; i++) {
        struct eth_addr many = { .ea = { 2, 1, 0, i >> 16, i >> 8, i } };

        ipoib_known_add(a, many, &ip, 30000);
    }
    CHECK_INT(ipoib_known_count(), 65536);
    ipoib_known_add(a, mac_of(9), &ip, 30000 + 20 * 60 * 1000);
    b = ipoib_known_create(0xffff);
    CHECK_INT(ipoib_known_take(b, mac_of(9), 30000 + 20 * 60 * 1000, ips), 1);
    ipoib_known_destroy(b);
    ipoib_known_destroy(a);
    ipoib_known_destroy(other);
}

OVSTEST_REGISTER("test-ipoib-known", test_ipoib_known_main);
