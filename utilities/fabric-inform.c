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
#include "fabric-inform.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-forward.h"
#include "fabric-ports.h"
#include "hash.h"
#include "openvswitch/poll-loop.h"
#include "timeval.h"
#include "util.h"

/* A Report is sent again until it is answered, so often. */
#define REPORT_TIMEOUT_MS 500
#define MAX_RETRIES 5
/* Bounds. */
#define MAX_SUBSCRIPTIONS_PORT 64
#define MAX_REPORTS 65536

#define TRAP_ANY 0xffff

/* Offset of a notice's GID in its details (14.2.5.1). */
#define DETAILS_GID 6

struct fabric_subscription {
    struct hmap_node node;      /* In 'subscriptions', by port. */
    struct fabric_peer peer;
    uint16_t trap;              /* Or TRAP_ANY. */
};

/* A Report that was not answered yet. */
struct fabric_report {
    struct hmap_node node;      /* In 'reports', by transaction ID. */
    struct ovs_list timer_node; /* In 'report_timers', next to fire first. */
    long long int deadline;
    int retries;
    uint64_t tid;
    struct fabric_peer peer;
    struct ib_sa_mad mad;
};

void
fabric_inform_init(struct fabric *fabric)
{
    hmap_init(&fabric->subscriptions);
    hmap_init(&fabric->reports);
    ovs_list_init(&fabric->report_timers);
    fabric->report_tid = 1;
}

static void
subscription_destroy(struct fabric *fabric,
                     struct fabric_subscription *subscription)
{
    subscription->peer.port->n_subscriptions--;
    hmap_remove(&fabric->subscriptions, &subscription->node);
    free(subscription);
}

static void
report_destroy(struct fabric *fabric, struct fabric_report *report)
{
    hmap_remove(&fabric->reports, &report->node);
    ovs_list_remove(&report->timer_node);
    free(report);
}

/* Forgets what 'port' subscribed to, or, if 'port' is NULL, what everybody
 * did. */
static void
forget(struct fabric *fabric, struct fabric_port *port)
{
    struct fabric_subscription *subscription;
    struct fabric_report *report;

    HMAP_FOR_EACH_SAFE (subscription, node, &fabric->subscriptions) {
        if (!port || subscription->peer.port == port) {
            subscription_destroy(fabric, subscription);
        }
    }
    HMAP_FOR_EACH_SAFE (report, node, &fabric->reports) {
        if (!port || report->peer.port == port) {
            report_destroy(fabric, report);
        }
    }
}

void
fabric_inform_forget_port(struct fabric *fabric, struct fabric_port *port)
{
    if (!hmap_is_empty(&fabric->subscriptions)
        || !hmap_is_empty(&fabric->reports)) {
        forget(fabric, port);
    }
}

void
fabric_inform_forget_all(struct fabric *fabric)
{
    forget(fabric, NULL);
}

void
fabric_inform_destroy(struct fabric *fabric)
{
    fabric_inform_forget_all(fabric);
    hmap_destroy(&fabric->subscriptions);
    hmap_destroy(&fabric->reports);
}

static struct fabric_subscription *
find_subscription(const struct fabric *fabric, const struct fabric_port *port,
                  uint32_t qpn, uint16_t trap)
{
    struct fabric_subscription *subscription;

    HMAP_FOR_EACH_WITH_HASH (subscription, node, hash_pointer(port, 0),
                             &fabric->subscriptions) {
        if (subscription->peer.port == port && subscription->peer.qpn == qpn
            && subscription->trap == trap) {
            return subscription;
        }
    }
    return NULL;
}

static uint16_t
unsubscribe(struct fabric *fabric, const struct fabric_peer *peer,
            const struct ib_inform_info *inform)
{
    uint16_t trap = ntohs(inform->trap_number);
    uint32_t qpn = ntohl(inform->qpn_resp) >> 8;
    struct fabric_subscription *subscription;

    /* The QP whose subscription ends stands in the record; most leave it 0. */
    subscription = find_subscription(fabric, peer->port, qpn, trap);
    if (!subscription) {
        subscription = find_subscription(fabric, peer->port, peer->qpn, trap);
    }
    if (!subscription) {
        return IB_SA_REQ_INVALID;
    }
    subscription_destroy(fabric, subscription);
    return 0;
}

/* Does what the InformInfo 'inform' from 'peer' asks for.  Returns an SA
 * status. */
uint16_t
fabric_inform_set(struct fabric *fabric, const struct fabric_peer *peer,
                  const struct ib_inform_info *inform)
{
    uint16_t trap = ntohs(inform->trap_number);
    struct fabric_subscription *subscription;

    if (inform->subscribe > 1 || inform->is_generic > 1) {
        return IB_SA_REQ_INVALID;
    }
    if (!inform->subscribe) {
        return unsubscribe(fabric, peer, inform);
    }
    subscription = find_subscription(fabric, peer->port, peer->qpn, trap);
    if (!subscription) {
        if (peer->port->n_subscriptions >= MAX_SUBSCRIPTIONS_PORT) {
            return IB_SA_NO_RESOURCES;
        }
        subscription = xzalloc(sizeof *subscription);
        subscription->trap = trap;
        hmap_insert(&fabric->subscriptions, &subscription->node,
                    hash_pointer(peer->port, 0));
        peer->port->n_subscriptions++;
    }
    subscription->peer = *peer;
    return 0;
}

/* Reports. */

static void
send_report(struct fabric *fabric, struct fabric_report *report)
{
    /* The port may have another LID by now. */
    report->peer.lid = report->peer.port->lid;
    fabric_forward_from_sm(fabric, &report->peer, &report->mad);
    report->deadline = time_msec() + REPORT_TIMEOUT_MS;
    ovs_list_push_back(&fabric->report_timers, &report->timer_node);
}

static void
compose_report(struct fabric *fabric, uint16_t trap, const struct ib_gid *gid,
               struct fabric_report *report)
{
    struct ib_sa_mad *mad = &report->mad;
    ovs_be64 tid = htonll(report->tid);
    struct ib_notice notice;

    memset(mad, 0, sizeof *mad);
    mad->base_version = IB_MAD_BASE_VERSION;
    mad->mgmt_class = IB_MGMT_CLASS_SA;
    mad->class_version = IB_SA_CLASS_VERSION;
    mad->method = IB_METHOD_REPORT;
    memcpy(&mad->tid, &tid, sizeof tid);
    mad->attr_id = htons(IB_ATTR_NOTICE);

    memset(&notice, 0, sizeof notice);
    notice.generic_type = 0x80 | 3; /* Generic, subnet management. */
    notice.producer[2] = 4;         /* A class manager. */
    notice.trap_number = htons(trap);
    notice.issuer_lid = htons(fabric->sm->lid);
    memcpy(notice.details + DETAILS_GID, gid, sizeof *gid);
    notice.issuer_gid = fabric_port_gid(fabric, fabric->sm);
    memcpy(mad->data, &notice, sizeof notice);
}

/* Sends 'trap' about 'gid' to those who subscribed to it. */
void
fabric_inform_notify(struct fabric *fabric, uint16_t trap,
                     const struct ib_gid *gid)
{
    struct fabric_subscription *subscription;

    HMAP_FOR_EACH (subscription, node, &fabric->subscriptions) {
        struct fabric_report *report;

        if (subscription->trap != trap && subscription->trap != TRAP_ANY) {
            continue;
        }
        if (hmap_count(&fabric->reports) >= MAX_REPORTS) {
            fabric_count(fabric, subscription->peer.port,
                         FC_sa_report_overflow);
            continue;
        }
        report = xzalloc(sizeof *report);
        report->tid = fabric->report_tid++;
        report->peer = subscription->peer;
        compose_report(fabric, trap, gid, report);
        hmap_insert(&fabric->reports, &report->node,
                    hash_uint64(report->tid));
        fabric_count(fabric, report->peer.port, FC_sa_reports);
        send_report(fabric, report);
    }
}

/* Handles 'mad' from 'peer' if it answers a Report.  Returns false if it is
 * something else. */
bool
fabric_inform_input(struct fabric *fabric, const struct fabric_peer *peer,
                    const struct ib_sa_mad *mad)
{
    struct fabric_report *report;
    ovs_be64 tid_be;
    uint64_t tid;

    if (mad->method != IB_METHOD_REPORT_RESP) {
        return false;
    }
    memcpy(&tid_be, &mad->tid, sizeof tid_be);
    tid = ntohll(tid_be);
    HMAP_FOR_EACH_WITH_HASH (report, node, hash_uint64(tid),
                             &fabric->reports) {
        if (report->tid == tid && report->peer.port == peer->port) {
            report_destroy(fabric, report);
            break;
        }
    }
    return true;
}

void
fabric_inform_run(struct fabric *fabric)
{
    struct fabric_report *report;

    LIST_FOR_EACH_SAFE (report, timer_node, &fabric->report_timers) {
        if (report->deadline > time_msec()) {
            break;
        }
        if (report->retries++ >= MAX_RETRIES) {
            fabric_count(fabric, report->peer.port, FC_sa_report_timeouts);
            report_destroy(fabric, report);
            continue;
        }
        fabric_count(fabric, report->peer.port, FC_sa_report_retries);
        ovs_list_remove(&report->timer_node);
        send_report(fabric, report);
    }
}

void
fabric_inform_wait(struct fabric *fabric)
{
    if (!ovs_list_is_empty(&fabric->report_timers)) {
        struct fabric_report *report = CONTAINER_OF(
            ovs_list_front(&fabric->report_timers),
            struct fabric_report, timer_node);

        poll_timer_wait_until(report->deadline);
    }
}
