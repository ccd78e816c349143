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
#include "ipoib-peer.h"
#include "ovstest.h"
#include "test-ipoib-fake.h"
#include "util.h"

#define N 3

/* Gateways of one partition and one Ethernet. */
static struct ipoib_peers gw[N];
static bool dead[N];
static bool deaf[N];            /* Its Ethernet side is somewhere else. */
static long long int now = 1000000;

static void
start(enum ipoib_peer_mode mode)
{
    for (int i = 0; i < N; i++) {
        ipoib_peers_init(&gw[i], 0xffff);
        gw[i].gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, 0x100 + i);
        ipoib_peers_set_mode(&gw[i], mode, now);
        dead[i] = deaf[i] = false;
    }
}

static void
stop(void)
{
    for (int i = 0; i < N; i++) {
        ipoib_peers_destroy(&gw[i]);
    }
}

static void
tell(int from, bool leaving)
{
    struct ipoib_beacon beacon;

    ipoib_peers_compose(&gw[from], leaving, &beacon);
    for (int to = 0; to < N; to++) {
        if (!dead[to]) {
            ipoib_peers_receive(&gw[to], &beacon, sizeof beacon, false, now);
            if (!deaf[from] && !deaf[to]) {
                ipoib_peers_receive(&gw[to], &beacon, sizeof beacon, true,
                                    now);
            }
        }
    }
}

static int
n_in(enum ipoib_role role)
{
    int n = 0;

    for (int i = 0; i < N; i++) {
        n += !dead[i] && gw[i].role == role;
    }
    return n;
}

/* Lets 'ms' pass.  Never are two active that hear each other for longer than
 * it takes to hear that. */
static void
pass(int ms)
{
    int twice = 0;

    for (; ms > 0; ms -= 50, now += 50) {
        for (int i = 0; i < N; i++) {
            if (!dead[i] && ipoib_peers_talk(&gw[i]) && now >= gw[i].next) {
                tell(i, false);
                gw[i].next = now + IPOIB_PEER_INTERVAL;
            }
        }
        for (int i = 0; i < N; i++) {
            if (!dead[i]) {
                ipoib_peers_run(&gw[i], now);
            }
        }
        twice = n_in(IPOIB_ROLE_ACTIVE) > 1 + (deaf[0] | deaf[1] | deaf[2])
                ? twice + 1 : 0;
        ovs_assert(twice < 4);
    }
}

static void
test_standby(void)
{
    start(IPOIB_PEERS_STANDBY);
    CHECK_INT(n_in(IPOIB_ROLE_WAITING), N);
    pass(1000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    CHECK_INT(n_in(IPOIB_ROLE_STANDBY), N - 1);
    ovs_assert(ipoib_peers_has(&gw[1], &gw[0].gid));
    ovs_assert(!ipoib_peers_has(&gw[1], &gw[1].gid));

    /* It dies: another one takes over soon, and keeps that. */
    dead[0] = true;
    pass(IPOIB_PEER_TIMEOUT + IPOIB_PEER_INTERVAL + 50);
    CHECK_INT(gw[1].role, IPOIB_ROLE_ACTIVE);
    CHECK_INT(gw[2].role, IPOIB_ROLE_STANDBY);
    ovs_assert(ipoib_peers_has(&gw[1], &gw[0].gid));
    pass(IPOIB_PEER_MEMORY);
    ovs_assert(!ipoib_peers_has(&gw[1], &gw[0].gid));
    dead[0] = false;
    ipoib_peers_restart(&gw[0], now);
    pass(1000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_STANDBY);
    CHECK_INT(gw[1].role, IPOIB_ROLE_ACTIVE);

    /* It leaves: at once. */
    tell(1, true);
    dead[1] = true;
    pass(50);
    CHECK_INT(n_in(IPOIB_ROLE_ACTIVE), 1);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);

    /* Its Ethernet is cut off: both are active, without a loop.  When it is
     * there again, the one with the higher GUID yields. */
    deaf[0] = true;
    pass(1000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    CHECK_INT(gw[2].role, IPOIB_ROLE_ACTIVE);
    deaf[0] = false;
    pass(200);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    CHECK_INT(gw[2].role, IPOIB_ROLE_STANDBY);
    stop();
}

/* One stands still, as a machine may: when it goes on, it listens before it
 * takes the others for dead. */
static void
test_stall(void)
{
    start(IPOIB_PEERS_STANDBY);
    dead[2] = true;
    pass(1000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    for (int ms = IPOIB_PEER_STALL; ms < 20000; ms *= 2) {
        now += ms;
        ovs_assert(!ipoib_peers_run(&gw[1], now));
        CHECK_INT(gw[1].role, IPOIB_ROLE_STANDBY);
        pass(200);
        CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
        CHECK_INT(gw[1].role, IPOIB_ROLE_STANDBY);
    }

    /* Those that died meanwhile are found to be so, as soon as ever. */
    dead[0] = true;
    now += 5000;
    ovs_assert(!ipoib_peers_run(&gw[1], now));
    pass(IPOIB_PEER_TIMEOUT + 50);
    CHECK_INT(gw[1].role, IPOIB_ROLE_ACTIVE);
    stop();
}

static void
test_guard(void)
{
    start(IPOIB_PEERS_GUARD);
    pass(1000);
    CHECK_INT(n_in(IPOIB_ROLE_ALONE), N);
    ipoib_peers_loop(&gw[2], now);
    pass(100);
    CHECK_INT(n_in(IPOIB_ROLE_ALONE), 0);
    pass(1000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    CHECK_INT(n_in(IPOIB_ROLE_STANDBY), N - 1);

    /* The others are taken away: after a while there is silence. */
    dead[1] = dead[2] = true;
    pass(30000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    pass(40000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ALONE);
    CHECK_INT(gw[0].n_peers, 0);
    stop();

    start(IPOIB_PEERS_OFF);
    ipoib_peers_loop(&gw[2], now);
    pass(1000);
    CHECK_INT(n_in(IPOIB_ROLE_ALONE), N);
    stop();
}

static void
test_share(void)
{
    int served[N] = { 0 }, moved = 0;
    int before[3000], n_chance = 0;

    start(IPOIB_PEERS_SHARE);
    pass(1000);
    CHECK_INT(n_in(IPOIB_ROLE_SHARING), N);
    for (int key = 0; key < 3000; key++) {
        int n = 0;

        for (int i = 0; i < N; i++) {
            if (ipoib_share_is_ours(&gw[i].share, key)) {
                served[i]++;
                before[key] = i;
                n++;
            }
        }
        CHECK_INT(n, 1);
    }
    for (int i = 0; i < N; i++) {
        ovs_assert(served[i] > 800 && served[i] < 1200);
    }

    /* Their stand-in MACs: known to the others, and nobody's by chance. */
    for (unsigned int i = 0; i < 100000; i++) {
        struct eth_addr mac = { .ea = { 2, i, i >> 8, i >> 3, i, i >> 8 } };
        struct eth_addr a = ipoib_share_mac(0x100, mac);

        ovs_assert(eth_addr_is_local(a) && !eth_addr_is_multicast(a));
        ovs_assert(!ipoib_share_has_mac(&gw[0].share, a));
        ovs_assert(ipoib_share_has_mac(&gw[1].share, a));
        ovs_assert(eth_addr_equals(a, ipoib_share_mac(0x100, a)));
        n_chance += ipoib_share_has_mac(&gw[1].share, mac);
    }
    ovs_assert(n_chance < 3);
    ovs_assert(ipoib_share_has_guid(&gw[0].share, 0x101));
    ovs_assert(!ipoib_share_has_guid(&gw[0].share, 0x100));
    ovs_assert(!ipoib_share_has_guid(&gw[0].share, 0));

    /* One is not heard for a moment: it may be there all the same, so its
     * names are not taken for hosts and neighbours. */
    deaf[0] = true;
    pass(IPOIB_PEER_TIMEOUT + 2 * IPOIB_PEER_INTERVAL);
    CHECK_INT(gw[0].n_present, 0);
    CHECK_INT(gw[1].n_present, N - 2);
    for (int i = 0; i < 2; i++) {
        struct eth_addr mac = { .ea = { 2, 3, 4, 5, 6, 7 } };
        struct eth_addr theirs = ipoib_share_mac(0x101 - i, mac);

        ovs_assert(ipoib_share_has_guid(&gw[i].share, 0x101 - i));
        ovs_assert(ipoib_share_has_mac(&gw[i].share, theirs));
        ovs_assert(ipoib_peers_has(&gw[i], &gw[1 - i].gid));
    }
    pass(IPOIB_PEER_MEMORY);
    for (int i = 0; i < 2; i++) {
        ovs_assert(!ipoib_share_has_guid(&gw[i].share, 0x101 - i));
        ovs_assert(!ipoib_peers_has(&gw[i], &gw[1 - i].gid));
    }
    deaf[0] = false;
    pass(1000);

    /* One goes: only its hosts go to others. */
    dead[1] = true;
    pass(1000);
    for (int key = 0; key < 3000; key++) {
        int now_is = ipoib_share_is_ours(&gw[0].share, key) ? 0 : 2;

        ovs_assert(ipoib_share_is_ours(&gw[2].share, key) == (now_is == 2));
        moved += before[key] != now_is;
    }
    CHECK_INT(moved, served[1]);

    /* One says that it leaves: some of what it has sent may still arrive. */
    tell(0, true);
    dead[0] = true;
    pass(100);
    CHECK_INT(gw[2].n_present, 0);
    ovs_assert(ipoib_share_has_guid(&gw[2].share, 0x100));
    ovs_assert(ipoib_peers_has(&gw[2], &gw[0].gid));
    pass(IPOIB_PEER_MEMORY);
    ovs_assert(!ipoib_share_has_guid(&gw[2].share, 0x100));
    CHECK_INT(gw[2].n_known, 0);
    CHECK_INT(gw[2].n_peers, 1);    /* The one that died is not forgotten. */
    pass(1000);
    CHECK_INT(ipoib_share_is_ours(&gw[2].share, 7), true);
    CHECK_INT(gw[2].role, IPOIB_ROLE_SHARING);

    /* One that does not share: only one is active then. */
    dead[0] = dead[1] = false;
    ipoib_peers_set_mode(&gw[0], IPOIB_PEERS_STANDBY, now);
    pass(1500);
    CHECK_INT(n_in(IPOIB_ROLE_ACTIVE), 1);
    CHECK_INT(n_in(IPOIB_ROLE_STANDBY), N - 1);
    CHECK_INT(ipoib_share_is_ours(&gw[2].share, 7), true);
    stop();
}

static void
test_malformed(void)
{
    struct ipoib_beacon good, bad;

    start(IPOIB_PEERS_STANDBY);
    ipoib_peers_compose(&gw[1], false, &good);
    ovs_assert(ipoib_peers_receive(&gw[0], &good, sizeof good, true, now));
    ovs_assert(!ipoib_peers_receive(&gw[1], &good, sizeof good, true, now));
    for (size_t len = 0; len < sizeof good; len++) {
        ovs_assert(!ipoib_peers_receive(&gw[0], &good, len, true, now));
    }
    for (size_t i = 0; i < 5; i++) {
        bad = good;
        ((uint8_t *) &bad)[i] ^= 1;
        ovs_assert(!ipoib_peers_receive(&gw[0], &bad, sizeof bad, true, now));
    }
    bad = good;
    bad.pkey = htons(0x8001);
    ovs_assert(!ipoib_peers_receive(&gw[0], &bad, sizeof bad, true, now));

    /* Anybody may send with many GUIDs. */
    for (uint64_t guid = 1; guid < 100; guid++) {
        bad = good;
        bad.gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, guid << 32);
        ipoib_peers_receive(&gw[0], &bad, sizeof bad, true, now);
    }
    CHECK_INT(gw[0].n_peers, IPOIB_MAX_PEERS);
    stop();
}

/* Somebody who is on both sides comes and goes under many GUIDs: not all are
 * remembered. */
static void
test_many_leave(void)
{
    struct ipoib_beacon beacon;

    start(IPOIB_PEERS_SHARE);
    pass(1000);
    for (uint64_t guid = 1; guid < 100; guid++) {
        for (int leaving = 0; leaving < 2; leaving++) {
            ipoib_peers_compose(&gw[1], leaving, &beacon);
            beacon.gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, guid << 32);
            ipoib_peers_receive(&gw[0], &beacon, sizeof beacon, true, now);
            ipoib_peers_receive(&gw[0], &beacon, sizeof beacon, false, now);
            ipoib_peers_run(&gw[0], now);
        }
        ovs_assert(gw[0].n_known <= 2 * IPOIB_MAX_PEERS);
    }
    CHECK_INT(gw[0].n_peers, IPOIB_MAX_PEERS);
    for (int i = 1; i < N; i++) {
        ovs_assert(ipoib_share_has_guid(&gw[0].share, 0x100 + i));
    }
    stop();
}

/* Tells gateway 'to' on Ethernet, as anybody there can, that 'from' is in the
 * state of 'flags'. */
static void
forge(int from, int to, uint8_t flags)
{
    struct ipoib_beacon beacon;

    ipoib_peers_compose(&gw[from], false, &beacon);
    beacon.flags = flags;
    ipoib_peers_receive(&gw[to], &beacon, sizeof beacon, true, now);
}

/* Nobody on Ethernet alone changes who is active. */
static void
test_forged(void)
{
    struct ipoib_beacon beacon;

    start(IPOIB_PEERS_STANDBY);
    dead[2] = true;
    pass(1000);
    CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
    CHECK_INT(gw[1].role, IPOIB_ROLE_STANDBY);
    for (int i = 0; i < 100; i++) {
        forge(1, 0, IPOIB_BEACON_ACTIVE);
        forge(0, 1, i & 1 ? 0 : IPOIB_BEACON_LEAVING);
        for (int j = 0; j < 2; j++) {
            ipoib_peers_run(&gw[j], now);
        }
        CHECK_INT(gw[0].role, IPOIB_ROLE_ACTIVE);
        CHECK_INT(gw[1].role, IPOIB_ROLE_STANDBY);
        pass(50);
    }

    /* Who loses the fabric says so on Ethernet, where it still can. */
    forge(0, 1, IPOIB_BEACON_LEAVING);
    dead[0] = true;
    pass(IPOIB_PEER_LEAVE_TIME + 50);
    CHECK_INT(gw[1].role, IPOIB_ROLE_ACTIVE);

    /* Made-up GUIDs on one side keep nobody from being found. */
    for (int side = 0; side < 2; side++) {
        for (uint64_t guid = 1; guid < 99; guid++) {
            ipoib_peers_compose(&gw[2], false, &beacon);
            beacon.gid = ib_gid_make(IB_GID_PREFIX_DEFAULT,
                                     guid << (32 + side * 8));
            ipoib_peers_receive(&gw[1], &beacon, sizeof beacon, side, now);
        }
    }
    CHECK_INT(gw[1].n_peers, 2 * IPOIB_MAX_PEERS + 1);
    stop();
    start(IPOIB_PEERS_STANDBY);
    for (uint64_t guid = 1; guid < 100; guid++) {
        ipoib_peers_compose(&gw[2], false, &beacon);
        beacon.gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, guid << 32);
        ipoib_peers_receive(&gw[1], &beacon, sizeof beacon, true, now);
    }
    pass(1000);
    CHECK_INT(gw[1].n_present, N - 1);
    CHECK_INT(gw[1].role, IPOIB_ROLE_STANDBY);
    stop();
}

static void
test_ipoib_peer_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    test_standby();
    test_stall();
    test_guard();
    test_share();
    test_malformed();
    test_many_leave();
    test_forged();
}

OVSTEST_REGISTER("test-ipoib-peer", test_ipoib_peer_main);
