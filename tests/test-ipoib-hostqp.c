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
#include "ipoib-hostqp.h"

#include "dp-packet.h"
#include "ipoib-control.h"
#include "ipoib-dev.h"
#include "ipoib-rx.h"
#include "netdev.h"
#include "ovs-rcu.h"
#include "ovstest.h"
#include "test-ipoib-fake.h"
#include "timeval.h"
#include "util.h"

/* The queue pair of a host that has gone: its number rests.  A whole port with
 * its control thread; this thread is the PMD. */

static struct ipoib_dev *dev;
static struct ipoib_partition *part;

static void
no_change(void *aux OVS_UNUSED)
{
}

static const struct ipoib_partition_ops ops = { .changed = no_change };

static void
poll(void)
{
    struct dp_packet_batch batch;

    dp_packet_batch_init(&batch);
    if (!ipoib_rx_batch(part->rxqs[0], &batch)) {
        dp_packet_delete_batch(&batch, true);
    }
    ovsrcu_quiesce();
    xnanosleep(1000 * 1000);
}

static void
open_port(void)
{
    struct ipoib_dev_options options = {
        .device = xstrdup("soft:loop:rest"),
        .port = 1,
        .pkey = 0xffff,
        .config = {
            .n_rxq = 1, .n_txq = 1, .n_rxq_desc = 256, .n_txq_desc = 256,
            .max_host_qps = 64, .max_neighbours = 1024, .max_groups = 64,
            .max_host_groups = 16,
        },
    };
    char *err = NULL;

    if (ipoib_dev_open("rest", &options, &ops, NULL, &dev, &err)) {
        ovs_fatal(0, "%s", err);
    }
    part = dev->part;
    ovs_assert(!ipoib_dev_configure(dev, &options.config));
    for (int i = 0; !ipoib_dev_is_up(dev); i++) {
        ovs_assert(i < 10000);
        poll();
    }
    free(options.device);
}

static uint32_t
data_path_now(void)
{
    uint32_t now;

    atomic_read_relaxed(&part->shared.now, &now);
    return now;
}

/* The control thread tells the data path the time, as a second begins. */
static void
check_clock(void)
{
    uint32_t now = data_path_now();

    for (int i = 0; data_path_now() == now; i++) {
        ovs_assert(i < 10000);
        poll();
    }
    ovs_assert(data_path_now() <= time_now());
}

static struct ipoib_hostqp_stats
stats(void)
    OVS_REQUIRES(dev->hca->mutex)
{
    struct ipoib_hostqp_stats s;

    ipoib_hostqps_get_stats(part->hostqps, &s);
    return s;
}

/* True if our own packets from 'qpn' would be known. */
static bool
is_ours(uint32_t qpn)
{
    return ipoib_table_lookup(part->shared.own_qpns, qpn) != IPOIB_SLOT_NONE;
}

/* A new host 'i'; returns its QPN. */
static uint32_t
add_host(int i)
{
    struct eth_addr mac = { .ea = { 0x52, 0x54, 0, 0, 0, i } };
    struct ipoib_host *host;
    uint32_t qpn;

    ovs_mutex_lock(&dev->hca->mutex);
    host = ipoib_control_learn_host(part, mac, NULL, time_msec());
    ovs_assert(host && host->qpn && !host->shares_qp);
    qpn = host->qpn;
    ovs_assert(is_ours(qpn));
    ovs_mutex_unlock(&dev->hca->mutex);
    return qpn;
}

static size_t
n_resting(void)
{
    size_t n;

    ovs_mutex_lock(&dev->hca->mutex);
    n = stats().n_resting;
    ovs_mutex_unlock(&dev->hca->mutex);
    return n;
}

static void
test_ipoib_hostqp_main(int argc OVS_UNUSED, char *argv[] OVS_UNUSED)
{
    struct ipoib_host *host;
    long long int before, after;
    uint32_t gone, other;

    open_port();
    check_clock();
    for (int i = 0; i < 1000; i++) {
        poll();                 /* Some queue pairs are made ready. */
    }
    gone = add_host(1);
    other = add_host(2);
    ovs_assert(gone != other);

    /* The host goes, and the queue pair is drained. */
    ovs_mutex_lock(&dev->hca->mutex);
    before = time_msec();
    host = ipoib_partition_host_of_qpn(part, gone);
    ovs_assert(host);
    ipoib_host_remove(part->shared.hosts, host);
    ovs_assert(!ipoib_partition_host_of_qpn(part, gone));
    CHECK_INT(stats().n_draining, 1);
    ovs_mutex_unlock(&dev->hca->mutex);
    for (int i = 0; !n_resting(); i++) {
        ovs_assert(i < 10000);
        poll();
    }
    after = time_msec();

    /* For ten minutes it is there, and its number is nobody's. */
    ovs_mutex_lock(&dev->hca->mutex);
    ipoib_hostqps_run(part->hostqps, before + IPOIB_QPN_REST - 1);
    CHECK_INT(stats().n_resting, 1);
    ovs_assert(is_ours(gone));
    ovs_mutex_unlock(&dev->hca->mutex);
    ovs_assert(add_host(1) != gone);

    /* Then it is not. */
    ovs_mutex_lock(&dev->hca->mutex);
    ipoib_hostqps_run(part->hostqps, after + IPOIB_QPN_REST);
    CHECK_INT(stats().n_resting, 0);
    ovs_assert(!is_ours(gone) && is_ours(other));
    ovs_mutex_unlock(&dev->hca->mutex);
    ipoib_dev_close(dev, NULL, NULL);
}

OVSTEST_REGISTER("test-ipoib-hostqp", test_ipoib_hostqp_main);
