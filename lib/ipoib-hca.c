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
#include "ipoib-hca.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "ipoib-pool-eal.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "ovs-rcu.h"
#include "ovs-thread.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_hca);

/* The control thread tries this often, in ms, to make a transport for the SA
 * client that could not be made. */
#define TRANSPORT_RETRY 5000

/* While the SA answers neither by one transport nor by the other, they take
 * turns: of this length in ms at first, and longer and longer then. */
#define SWITCH_PAUSE 4000
#define SWITCH_PAUSE_MAX 64000

/* After so many requests in a row that nobody answered, the transport is
 * started anew, but no more often than this, in ms. */
#define DEAF_TIMEOUTS 2
#define DEAF_PAUSE 30000

/* The attributes of a port that is not active are read again this often, in
 * ms, since no event tells how far the subnet manager has brought it. */
#define PORT_POLL 2000

static struct ovs_mutex hcas_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list all_hcas OVS_GUARDED_BY(hcas_mutex)
    = OVS_LIST_INITIALIZER(&all_hcas);

static void *hca_main(void *hca_);
static void port_notify(struct ipoib_hca_port *, unsigned int changes);


/* Opening and closing. */

static struct ipoib_hca *
hca_find(const char *device)
    OVS_REQUIRES(hcas_mutex)
{
    struct ipoib_hca *hca;

    LIST_FOR_EACH (hca, node, &all_hcas) {
        if (!strcmp(hca->name, device) && !ipoib_hca_has_failed(hca)) {
            return hca;
        }
    }
    return NULL;
}

static void
hca_free(struct ipoib_hca *hca)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    ipoib_ah_reaper_destroy(hca->reaper);
    if (hca->pd) {
        ipoib_pool_eal_close(hca->pd);
        hca->verbs->dealloc_pd(hca->pd);
    }
    if (hca->ctx) {
        hca->verbs->close_device(hca->ctx);
    }
    ipoib_waker_destroy(&hca->waker);
    latch_destroy(&hca->exit_latch);
    ovs_mutex_destroy(&hca->mutex);
    free(hca->name);
    free(hca);
}

static int
hca_open(const char *device, struct ipoib_hca **hcap, char **errp)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_hca *hca = xzalloc(sizeof *hca);
    int error = 0;

    hca->name = xstrdup(device);
    hca->n_refs = 1;
    atomic_init(&hca->has_failed, false);
    hca->verbs = ipoib_verbs_for_device(device);
    ovs_mutex_init(&hca->mutex);
    ovs_list_init(&hca->ports);
    ipoib_waker_init(&hca->waker);
    latch_init(&hca->exit_latch);

    hca->ctx = hca->verbs->open_device(device, errp);
    if (!hca->ctx) {
        error = errno;
    } else {
        error = hca->verbs->query_device(hca->ctx, &hca->attr);
    }
    if (!error) {
        hca->pd = hca->verbs->alloc_pd(hca->ctx);
        error = hca->pd ? 0 : errno;
    }
    if (error) {
        if (!*errp) {
            *errp = xasprintf("cannot open device '%s' (%s)", device,
                              ovs_strerror(error));
        }
        hca_free(hca);
        return error;
    }
    hca->numa_id = hca->verbs->numa_node(hca->ctx);
    hca->reaper = ipoib_ah_reaper_create(hca->verbs);
    hca->thread = ovs_thread_create("ipoib_hca", hca_main, hca);
    *hcap = hca;
    return 0;
}

int
ipoib_hca_ref(const char *device, struct ipoib_hca **hcap, char **errp)
{
    struct ipoib_hca *hca;
    int error = 0;

    *errp = NULL;
    ovs_mutex_lock(&hcas_mutex);
    hca = hca_find(device);
    if (hca) {
        hca->n_refs++;
    } else {
        error = hca_open(device, &hca, errp);
        if (!error) {
            ovs_list_push_back(&all_hcas, &hca->node);
        }
    }
    ovs_mutex_unlock(&hcas_mutex);
    *hcap = error ? NULL : hca;
    return error;
}

void
ipoib_hca_unref(struct ipoib_hca *hca)
{
    if (!hca) {
        return;
    }
    ovs_mutex_lock(&hcas_mutex);
    if (--hca->n_refs) {
        hca = NULL;
    } else {
        ovs_list_remove(&hca->node);
    }
    ovs_mutex_unlock(&hcas_mutex);

    if (hca) {
        latch_set(&hca->exit_latch);
        xpthread_join(hca->thread, NULL);
        hca_free(hca);
    }
}

bool
ipoib_hca_has_failed(const struct ipoib_hca *hca_)
{
    struct ipoib_hca *hca = CONST_CAST(struct ipoib_hca *, hca_);
    bool fatal;

    atomic_read_relaxed(&hca->has_failed, &fatal);
    return fatal;
}

void
ipoib_hca_kick(struct ipoib_hca *hca)
{
    ipoib_waker_wake(&hca->waker);
}


/* Ports. */

/* Reads the P_Key table; returns true if it changed. */
static bool
port_read_pkeys(struct ipoib_hca_port *port)
{
    const struct ipoib_verbs *verbs = port->hca->verbs;
    uint16_t pkeys[IPOIB_MAX_PKEYS];
    int n = MIN(port->attr.pkey_tbl_len, IPOIB_MAX_PKEYS);

    for (int i = 0; i < n; i++) {
        ovs_be16 pkey;

        pkeys[i] = verbs->query_pkey(port->hca->ctx, port->num, i, &pkey)
                   ? 0 : ntohs(pkey);
    }
    if (n == port->n_pkeys && !memcmp(pkeys, port->pkeys, n * sizeof *pkeys)) {
        return false;
    }
    memcpy(port->pkeys, pkeys, n * sizeof *pkeys);
    port->n_pkeys = n;
    return true;
}

static bool
port_read_gid(struct ipoib_hca_port *port)
{
    union ibv_gid gid;

    if (port->hca->verbs->query_gid(port->hca->ctx, port->num, 0, &gid)
        || !memcmp(&gid, &port->gid, sizeof gid)) {
        return false;
    }
    memcpy(&port->gid, &gid, sizeof port->gid);
    port->guid = ib_gid_guid(&port->gid);
    return true;
}

static bool
port_read_needs_grh(struct ipoib_hca_port *port)
{
    bool old = port->needs_grh;

    port->needs_grh = port->hca->verbs->port_needs_grh(port->hca->ctx,
                                                       port->num);
    return port->needs_grh != old;
}

/* Tells the SA client where the SA is now. */
static void
port_set_sa_dest(struct ipoib_hca_port *port)
{
    struct ipoib_mad_dest dest = {
        .lid = port->attr.state == IBV_PORT_ACTIVE ? port->attr.sm_lid : 0,
        .sl = port->attr.sm_sl,
        .has_grh = port->needs_grh,
        .dgid = ib_gid_make(ib_gid_prefix(&port->gid),
                            UINT64_C(0x0200000000000002)),
    };

    ipoib_sa_set_dest(port->sa, &dest);
}

static void
port_log_pkeys(struct ipoib_hca_port *port)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    for (int i = 0; i < port->n_pkeys; i++) {
        if (port->pkeys[i]) {
            ds_put_format(&s, " %d:0x%04"PRIx16, i, port->pkeys[i]);
        }
    }
    ipoib_event_add(&port->events, port->label, IPOIB_EVENT_PKEYS,
                    "P_Key table:%s", s.length ? ds_cstr(&s) : " empty");
    ds_destroy(&s);
}

static void
port_log_gid(struct ipoib_hca_port *port)
{
    struct ds s = DS_EMPTY_INITIALIZER;

    ib_gid_format(&port->gid, &s);
    ipoib_event_add(&port->events, port->label, IPOIB_EVENT_GID, "GID %s",
                    ds_cstr(&s));
    ds_destroy(&s);
}

/* Adds 'changes' from the attributes 'old' to the events. */
static void
port_log_changes(struct ipoib_hca_port *port, const struct ibv_port_attr *old,
                 unsigned int changes)
{
    const struct ibv_port_attr *new = &port->attr;
    struct ipoib_events *events = &port->events;

    if (old->state == IBV_PORT_NOP) {
        /* The first look. */
        ipoib_event_add(events, port->label, IPOIB_EVENT_PORT_STATE,
                        "port is %s, LID %"PRIu16", subnet manager at LID "
                        "%"PRIu16, ipoib_port_state_to_string(new->state),
                        new->lid, new->sm_lid);
        return;
    }
    if (changes & IPOIB_PORT_STATE) {
        ipoib_event_add(events, port->label, IPOIB_EVENT_PORT_STATE,
                        "port is %s (was %s)",
                        ipoib_port_state_to_string(new->state),
                        ipoib_port_state_to_string(old->state));
    }
    if (changes & IPOIB_PORT_LID) {
        ipoib_event_add(events, port->label, IPOIB_EVENT_LID,
                        "LID %"PRIu16", LMC %"PRIu8" (was LID %"PRIu16", "
                        "LMC %"PRIu8")", new->lid, new->lmc, old->lid,
                        old->lmc);
    }
    if (changes & IPOIB_PORT_SM) {
        ipoib_event_add(events, port->label, IPOIB_EVENT_SM,
                        "subnet manager at LID %"PRIu16", SL %"PRIu8" (was "
                        "LID %"PRIu16", SL %"PRIu8")", new->sm_lid,
                        new->sm_sl, old->sm_lid, old->sm_sl);
    }
    if (changes & IPOIB_PORT_MTU) {
        ipoib_event_add(events, port->label, IPOIB_EVENT_MTU,
                        "active MTU %d (was %d)",
                        ib_mtu_bytes(new->active_mtu),
                        ib_mtu_bytes(old->active_mtu));
    }
    if (changes & IPOIB_PORT_PKEYS) {
        port_log_pkeys(port);
    }
    if (changes & IPOIB_PORT_GID) {
        port_log_gid(port);
    }
    if (changes & IPOIB_PORT_GRH) {
        ipoib_event_add(events, port->label, IPOIB_EVENT_PORT_STATE,
                        port->needs_grh ? "the port requires a GRH"
                        : "the port no longer requires a GRH");
    }
}

/* Reads all attributes of 'port'.  Returns what changed. */
static unsigned int
port_refresh(struct ipoib_hca_port *port)
{
    struct ibv_port_attr old = port->attr;
    struct ibv_port_attr *new = &port->attr;
    unsigned int changes = 0;
    int error;

    error = port->hca->verbs->query_port(port->hca->ctx, port->num, new);
    if (error) {
        *new = old;
        new->state = IBV_PORT_DOWN;
    }
    if (port_read_needs_grh(port)) {
        changes |= IPOIB_PORT_GRH;
    }
    if (new->state != old.state) {
        changes |= IPOIB_PORT_STATE;
    }
    if (new->lid != old.lid || new->lmc != old.lmc) {
        changes |= IPOIB_PORT_LID;
    }
    if (new->sm_lid != old.sm_lid || new->sm_sl != old.sm_sl) {
        changes |= IPOIB_PORT_SM;
    }
    if (new->active_mtu != old.active_mtu) {
        changes |= IPOIB_PORT_MTU;
    }
    if (port_read_pkeys(port)) {
        changes |= IPOIB_PORT_PKEYS;
    }
    if (port_read_gid(port)) {
        changes |= IPOIB_PORT_GID;
    }
    if (changes & IPOIB_PORT_PKEYS && port->transport) {
        port->transport->class->update(port->transport);
    }
    port_set_sa_dest(port);
    port_log_changes(port, &old, changes);
    return changes;
}

static void
port_receive_mad(void *port_, const struct ib_sa_mad *mad, uint16_t slid)
{
    struct ipoib_hca_port *port = port_;

    ipoib_sa_receive(port->sa, mad, slid);
}

static void
port_undelivered_mad(void *port_, const struct ib_sa_mad *mad)
{
    struct ipoib_hca_port *port = port_;

    ipoib_sa_undelivered(port->sa, mad);
}

/* A transport of one kind or the other.  NULL with errno set on failure. */
static struct ipoib_mad_transport *
port_open_transport(struct ipoib_hca_port *port, bool umad)
{
    struct ipoib_hca *hca = port->hca;
    struct ipoib_mad_transport *transport;

    if (umad) {
        transport = ipoib_mad_umad_create(hca->ctx->device->name, port->num,
                                          port_receive_mad, port);
    } else {
        transport = ipoib_mad_qp_create(hca->verbs, hca->ctx, hca->pd,
                                        port->num, port_receive_mad, port);
    }
    if (transport) {
        transport->undelivered = port_undelivered_mad;
    }
    return transport;
}

/* Makes 'transport' (or none) the one of the SA client, which sends all that
 * is not answered yet again by it. */
static void
port_set_transport(struct ipoib_hca_port *port,
                   struct ipoib_mad_transport *transport)
{
    struct ipoib_mad_transport *old = port->transport;

    port->transport = transport;
    port->n_recovered = 0;
    port->sa_proven = false;
    ipoib_sa_set_transport(port->sa, transport);
    ipoib_inform_set_qpn(port->inform, !transport ? 0
                         : transport->qpn ? transport->qpn : IB_QPN_GSI);
    if (old) {
        old->class->destroy(old);
    }
}

static void
port_transport_failed(struct ipoib_hca_port *port, bool umad, int error,
                      long long int now)
{
    if (port->transport_error != error) {
        port->transport_error = error;
        VLOG_WARN("%s: cannot make a %s for the subnet administrator (%s)",
                  port->label, umad ? "libibumad agent" : "queue pair",
                  error == EPERM && !umad ? "its Q_Key needs CAP_NET_RAW"
                  : ovs_strerror(error));
    }
    port->next_transport = now + TRANSPORT_RETRY;
}

/* Makes the transport of the SA client, unless it is there. */
static void
port_make_transport(struct ipoib_hca_port *port, long long int now)
{
    bool umad = port->sa_mode == IPOIB_SA_UMAD
                || (port->sa_mode == IPOIB_SA_AUTO && port->use_umad);
    struct ipoib_mad_transport *transport;

    if (port->transport || now < port->next_transport) {
        return;
    }
    transport = port_open_transport(port, umad);
    if (!transport && errno == EPERM && port->sa_mode == IPOIB_SA_AUTO
        && !umad) {
        transport = port_open_transport(port, true);
        if (transport) {
            port->use_umad = true;
            ipoib_event_add(&port->events, port->label, IPOIB_EVENT_SA,
                            "asks the subnet administrator by libibumad, "
                            "since a queue pair needs CAP_NET_RAW");
        } else {
            errno = EPERM;
        }
    }
    if (!transport) {
        port_transport_failed(port, umad, errno, now);
        return;
    }
    port->transport_error = 0;
    port_set_transport(port, transport);
}

/* The SA does not answer, and never has, by the transport in use: tries the
 * other one, if there is one. */
static void
port_switch_transport(struct ipoib_hca_port *port, long long int now)
{
    struct ipoib_mad_transport *other;
    bool umad = !port->use_umad;

    port->switch_pause = port->switch_pause ? port->switch_pause * 2
                                            : SWITCH_PAUSE;
    port->switch_pause = MIN(port->switch_pause, SWITCH_PAUSE_MAX);
    port->next_switch = now + port->switch_pause;
    other = port_open_transport(port, umad);
    if (other) {
        port->use_umad = umad;
        ipoib_event_add(&port->events, port->label, IPOIB_EVENT_SA,
                        "no answer from the subnet administrator by %s, "
                        "asks by %s", port->transport->class->name,
                        other->class->name);
        port_set_transport(port, other);
    } else {
        VLOG_DBG("%s: no answer from the subnet administrator, and %s cannot "
                 "be used (%s)", port->label, umad ? "libibumad" : "a QP",
                 ovs_strerror(errno));
    }
}

/* Where nothing is answered any more, the reason may be that the transport
 * does not receive, which nobody would notice otherwise. */
static void
port_watch_transport(struct ipoib_hca_port *port, long long int now)
{
    struct ipoib_mad_transport *transport = port->transport;
    struct ipoib_sa_stats stats;

    if (transport->n_recovered != port->n_recovered) {
        port->n_recovered = transport->n_recovered;
        ipoib_event_add(&port->events, port->label, IPOIB_EVENT_QP,
                        "the queue pair for management 0x%06"PRIx32" had "
                        "failed, or stood still: it works again",
                        transport->qpn);
    }
    ipoib_sa_get_stats(port->sa, &stats);
    if (stats.n_answers != port->n_answers) {
        port->n_answers = stats.n_answers;
        port->n_timeouts = stats.n_timeouts;
    } else if (stats.n_timeouts >= port->n_timeouts + DEAF_TIMEOUTS
               && now >= port->next_reset && transport->class->reset) {
        port->n_timeouts = stats.n_timeouts;
        port->next_reset = now + DEAF_PAUSE;
        transport->class->reset(transport);
        port->n_recovered = transport->n_recovered;
        VLOG_INFO("%s: the subnet administrator does not answer: started the "
                  "queue pair for management anew, in case that it was the "
                  "reason", port->label);
    }
}

/* Replaces a transport that is of no use. */
static void
port_check_transport(struct ipoib_hca_port *port, long long int now)
{
    struct ipoib_sa_info info;

    if (!port->transport) {
        return;
    }
    if (port->transport->broken) {
        ipoib_event_add(&port->events, port->label, IPOIB_EVENT_SA,
                        "the way to the subnet administrator by %s is gone "
                        "(%s)", port->transport->class->name,
                        ovs_strerror(port->transport->broken));
        port_set_transport(port, NULL);
        port->next_transport = now + TRANSPORT_RETRY;
        return;
    }
    port_watch_transport(port, now);
    ipoib_sa_get_info(port->sa, &info);
    port->sa_proven |= info.known;
    if (info.silent && !port->sa_proven && port->sa_mode == IPOIB_SA_AUTO
        && now >= port->next_switch) {
        port_switch_transport(port, now);
    }
}

void
ipoib_hca_port_set_sa_mode(struct ipoib_hca_port *port,
                           enum ipoib_sa_mode mode)
{
    bool is_umad = port->use_umad || port->sa_mode == IPOIB_SA_UMAD;

    if (mode == port->sa_mode) {
        return;
    }
    port->sa_mode = mode;
    port->use_umad = false;
    port->next_transport = port->next_switch = port->switch_pause = 0;
    port->transport_error = 0;
    if (is_umad != (mode == IPOIB_SA_UMAD)) {
        port_set_transport(port, NULL);
    }
    ipoib_hca_kick(port->hca);
}

const char *
ipoib_sa_mode_to_string(enum ipoib_sa_mode mode)
{
    switch (mode) {
    case IPOIB_SA_AUTO: return "auto";
    case IPOIB_SA_QP: return "qp";
    case IPOIB_SA_UMAD: return "umad";
    default: OVS_NOT_REACHED();
    }
}

static struct ipoib_hca_port *
port_find(struct ipoib_hca *hca, uint8_t num)
    OVS_REQUIRES(hca->mutex)
{
    struct ipoib_hca_port *port;

    LIST_FOR_EACH (port, node, &hca->ports) {
        if (port->num == num) {
            return port;
        }
    }
    return NULL;
}

/* Of a notice's details (14.2.5.1). */
#define NOTICE_GID_OFS 6

static void
port_tell_trap(struct ipoib_hca_port *port, uint16_t trap,
               const struct ib_gid *mgid)
{
    struct ipoib_hca_client *client;

    LIST_FOR_EACH_SAFE (client, node, &port->clients) {
        if (client->wants_traps) {
            client->ops->trap(client, trap, mgid);
        }
    }
}

static void
port_report(void *port, const struct ib_notice *notice)
{
    uint16_t trap = ntohs(notice->trap_number);

    if (notice->generic_type & 0x80
        && (trap == IB_TRAP_GROUP_CREATED || trap == IB_TRAP_GROUP_DELETED)) {
        struct ib_gid mgid;

        memcpy(&mgid, notice->details + NOTICE_GID_OFS, sizeof mgid);
        port_tell_trap(port, trap, &mgid);
    }
}

static void
port_subscribed(void *port)
{
    port_tell_trap(port, 0, NULL);
}

void
ipoib_hca_port_want_traps(struct ipoib_hca_port *port,
                          struct ipoib_hca_client *client, bool want)
{
    if (client->wants_traps != want) {
        bool any = false;

        client->wants_traps = want;
        LIST_FOR_EACH (client, node, &port->clients) {
            any |= client->wants_traps;
        }
        if (want && ipoib_inform_is_active(port->inform)) {
            /* For another one already: this one has missed what was. */
            ipoib_inform_restart(port->inform);
        }
        ipoib_inform_want(port->inform, any);
    }
}

int
ipoib_hca_port_ref(struct ipoib_hca *hca, uint8_t num,
                   struct ipoib_hca_port **portp)
{
    struct ipoib_hca_port *port = port_find(hca, num);
    struct ibv_port_attr attr;

    *portp = NULL;
    if (port) {
        port->n_refs++;
        *portp = port;
        return 0;
    }
    if (!num || num > hca->attr.phys_port_cnt
        || hca->verbs->query_port(hca->ctx, num, &attr)) {
        return ENODEV;
    }
    if (attr.link_layer == IBV_LINK_LAYER_ETHERNET) {
        return EPROTONOSUPPORT;
    }

    port = xzalloc(sizeof *port);
    port->hca = hca;
    port->num = num;
    port->n_refs = 1;
    port->label = xasprintf("%s port %"PRIu8, hca->name, num);
    ipoib_events_init(&port->events);
    port->sa = ipoib_sa_create();
    port->inform = ipoib_inform_create(port->sa, port_subscribed, port);
    ipoib_sa_set_report_cb(port->sa, port_report, port);
    ovs_list_init(&port->clients);
    ovs_list_push_back(&hca->ports, &port->node);
    port_refresh(port);
    *portp = port;
    return 0;
}

void
ipoib_hca_port_unref(struct ipoib_hca_port *port)
{
    if (!port || --port->n_refs) {
        return;
    }
    ovs_list_remove(&port->node);
    ipoib_inform_destroy(port->inform);
    ipoib_sa_set_transport(port->sa, NULL);
    ipoib_sa_destroy(port->sa);
    if (port->transport) {
        port->transport->class->destroy(port->transport);
    }
    ipoib_events_destroy(&port->events);
    free(port->label);
    free(port);
}

void
ipoib_hca_port_add_client(struct ipoib_hca_port *port,
                          struct ipoib_hca_client *client)
{
    ovs_list_push_back(&port->clients, &client->node);
    ipoib_hca_kick(port->hca);
}

void
ipoib_hca_port_remove_client(struct ipoib_hca_port *port,
                             struct ipoib_hca_client *client)
{
    ipoib_hca_port_want_traps(port, client, false);
    ovs_list_remove(&client->node);
}

int
ipoib_hca_port_find_pkey(const struct ipoib_hca_port *port, uint16_t pkey)
{
    int limited = -1;

    for (int i = 0; i < port->n_pkeys; i++) {
        if (!((port->pkeys[i] ^ pkey) & IB_PKEY_MASK)
            && port->pkeys[i] & IB_PKEY_MASK) {
            if (port->pkeys[i] & IB_PKEY_FULL) {
                return i;
            }
            limited = limited < 0 ? i : limited;
        }
    }
    return limited;
}

const char *
ipoib_port_state_to_string(enum ibv_port_state state)
{
    switch (state) {
    case IBV_PORT_NOP: return "no change";
    case IBV_PORT_DOWN: return "down";
    case IBV_PORT_INIT: return "initializing";
    case IBV_PORT_ARMED: return "armed";
    case IBV_PORT_ACTIVE: return "active";
    case IBV_PORT_ACTIVE_DEFER: return "active, deferred";
    default: return "unknown";
    }
}


/* Events. */

static void
port_notify(struct ipoib_hca_port *port, unsigned int changes)
{
    struct ipoib_hca_client *client;

    if (changes & (IPOIB_PORT_REREGISTER | IPOIB_PORT_SM | IPOIB_PORT_LID
                   | IPOIB_PORT_STATE | IPOIB_PORT_GID)) {
        ipoib_inform_restart(port->inform);
    }
    if (changes) {
        LIST_FOR_EACH_SAFE (client, node, &port->clients) {
            client->ops->port_changed(client, changes);
        }
    }
}

static void
hca_port_event(struct ipoib_hca *hca, const struct ibv_async_event *event)
    OVS_REQUIRES(hca->mutex)
{
    struct ipoib_hca_port *port = port_find(hca, event->element.port_num);
    unsigned int changes = 0;

    if (!port) {
        return;
    }
    if (event->event_type == IBV_EVENT_CLIENT_REREGISTER
        || event->event_type == IBV_EVENT_SM_CHANGE) {
        ipoib_event_add(&port->events, port->label, IPOIB_EVENT_REREGISTER,
                        event->event_type == IBV_EVENT_SM_CHANGE
                        ? "the subnet manager has changed"
                        : "the subnet manager asks to join again");
        changes = IPOIB_PORT_REREGISTER;
    }
    port_notify(port, changes | port_refresh(port));
}

static void
hca_qp_event(struct ipoib_hca *hca, enum ibv_event_type type, uint32_t qpn)
    OVS_REQUIRES(hca->mutex)
{
    struct ipoib_hca_port *port;
    struct ipoib_hca_client *client;

    LIST_FOR_EACH (port, node, &hca->ports) {
        LIST_FOR_EACH (client, node, &port->clients) {
            client->ops->qp_event(client, type, qpn);
        }
    }
}

static void
hca_fatal(struct ipoib_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    struct ipoib_hca_port *port;

    if (!hca->fatal) {
        hca->fatal = true;
        atomic_store_relaxed(&hca->has_failed, true);
        VLOG_WARN("%s: the device has failed", hca->name);
        LIST_FOR_EACH (port, node, &hca->ports) {
            ipoib_event_add(&port->events, port->label, IPOIB_EVENT_DEVICE,
                            "the device has failed");
            port_notify(port, IPOIB_PORT_FATAL | port_refresh(port));
        }
    }
}

static void
hca_handle_event(struct ipoib_hca *hca, const struct ibv_async_event *event)
    OVS_REQUIRES(hca->mutex)
{
    VLOG_DBG("%s: event %d", hca->name, event->event_type);
    switch (event->event_type) {
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_GID_CHANGE:
        hca_port_event(hca, event);
        break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
        hca_qp_event(hca, event->event_type, event->element.qp->qp_num);
        break;
    case IBV_EVENT_DEVICE_FATAL:
        hca_fatal(hca);
        break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_WQ_FATAL: {
        static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(1, 5);

        VLOG_WARN_RL(&rl, "%s: a queue has failed (event %d)", hca->name,
                     event->event_type);
        break;
    }
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    default:
        break;
    }
}

static void
hca_run_events(struct ipoib_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    struct ibv_async_event event;

    for (int i = 0; i < 1000; i++) {
        if (hca->verbs->get_async_event(hca->ctx, &event)) {
            break;
        }
        hca_handle_event(hca, &event);
        hca->verbs->ack_async_event(&event);
    }
}


/* The control thread. */

/* What a port asks of the fabric. */
static void
port_run_fabric(struct ipoib_hca_port *port, long long int now)
{
    if (port->attr.state != IBV_PORT_ACTIVE && now >= port->next_poll) {
        port->next_poll = now + PORT_POLL;
        port_notify(port, port_refresh(port));
    }
    port_make_transport(port, now);
    if (port->transport) {
        port->transport->class->run(port->transport);
    }
    ipoib_inform_run(port->inform, now);
    ipoib_sa_run(port->sa, now);
    port_check_transport(port, now);
}

static void
port_wait_fabric(struct ipoib_hca_port *port)
{
    if (port->attr.state != IBV_PORT_ACTIVE) {
        poll_timer_wait_until(port->next_poll);
    }
    if (port->transport) {
        port->transport->class->wait(port->transport);
    } else {
        poll_timer_wait_until(port->next_transport);
    }
    ipoib_inform_wait(port->inform);
    ipoib_sa_wait(port->sa);
}

static bool
port_run(struct ipoib_hca_port *port, long long int now)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_hca_client *client;
    bool more = false;

    if (!port->hca->fatal) {
        port_run_fabric(port, now);
    }
    LIST_FOR_EACH_SAFE (client, node, &port->clients) {
        more |= client->ops->run(client, now);
    }
    return more;
}

static void
port_wait(struct ipoib_hca_port *port)
    OVS_NO_THREAD_SAFETY_ANALYSIS
{
    struct ipoib_hca_client *client;

    /* The file descriptors of a device that is gone are always ready. */
    if (!port->hca->fatal) {
        port_wait_fabric(port);
    }
    LIST_FOR_EACH (client, node, &port->clients) {
        client->ops->wait(client);
    }
}

static bool
hca_run(struct ipoib_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    long long int now = time_msec();
    struct ipoib_hca_port *port;
    bool more = false;

    hca_run_events(hca);
    LIST_FOR_EACH (port, node, &hca->ports) {
        more |= port_run(port, now);
    }
    ipoib_ah_reaper_run(hca->reaper, now);
    return more;
}

static bool
hca_pending(struct ipoib_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    struct ipoib_hca_port *port;
    struct ipoib_hca_client *client;

    LIST_FOR_EACH (port, node, &hca->ports) {
        LIST_FOR_EACH (client, node, &port->clients) {
            if (client->ops->pending(client)) {
                return true;
            }
        }
    }
    return false;
}

/* Arranges for poll_block() to return when there is something to do.  The
 * rings are looked at after the thread has declared itself asleep: a PMD that
 * pushes later wakes it. */
static void
hca_wait(struct ipoib_hca *hca)
    OVS_REQUIRES(hca->mutex)
{
    struct ipoib_hca_port *port;

    if (!hca->fatal) {
        poll_fd_wait(hca->ctx->async_fd, POLLIN);
    }
    LIST_FOR_EACH (port, node, &hca->ports) {
        port_wait(port);
    }
    ipoib_ah_reaper_wait(hca->reaper);

    ipoib_waker_sleep(&hca->waker);
    ipoib_waker_wait(&hca->waker);
    if (hca_pending(hca)) {
        poll_immediate_wake();
    }
}

static void *
hca_main(void *hca_)
{
    struct ipoib_hca *hca = hca_;

    while (!latch_is_set(&hca->exit_latch)) {
        ovs_mutex_lock(&hca->mutex);
        if (hca_run(hca)) {
            poll_immediate_wake();
        }
        hca_wait(hca);
        ovs_mutex_unlock(&hca->mutex);

        latch_wait(&hca->exit_latch);
        poll_block();
        ipoib_waker_awake(&hca->waker);
    }
    return NULL;
}
