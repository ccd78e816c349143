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
#include "fabric-opensm.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-forward.h"
#include "fabric-ibsim.h"
#include "fabric-ports.h"
#include "fabric-sma.h"
#include "fabric-switch.h"
#include "hash.h"
#include "ipoib-compat.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/json.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "unaligned.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_opensm);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(20, 20);

/* Nodes on which managers and diagnostic programs may run. */
static const char *const sm_hosts[] = { "SM", "SM2" };
#define N_SM_HOSTS ARRAY_SIZE(sm_hosts)
#define SM_HOST_STEP 0x10       /* From one's GUID to the next. */

/* A trap is sent again until the manager has looked, after 0.5, 1, 2, 4 and 8
 * seconds: OpenSM starts no sweep for the trap of a node that sent more than
 * 10 of it with less than 5 seconds between them. */
#define TRAP_INTERVAL_MS 500
#define TRAP_MAX_DOUBLED 4
/* A request that a client has had no answer to for so long comes back to it:
 * libumad2sim has no timers of its own, and who waits for an answer that does
 * not come would wait for ever. */
#define REQUEST_TIMEOUT_MS 1000
/* Queue pairs of HCAs that are remembered. */
#define MAX_PEERS 65536

/* The manager's number of a client is in the top 16 bits of the transaction
 * ID, 0 for what comes from an HCA. */
#define TID_CLIENT_SHIFT 48
/* Below it, libumad2sim has its number of the agent that sent a request, which
 * it takes TrapRepress for as well. */
#define TID_AGENT_MASK   UINT64_C(0x0000ffff00000000)

struct fabric_opensm {
    struct fabric_ibsim *ibsim;
    struct fabric_lport *hosts[N_SM_HOSTS];
    struct hmap peers;          /* Of struct opensm_peer. */
    struct ovs_list requests;   /* Of struct opensm_request, oldest first. */
    uint64_t next_tid;
};

/* A client's request to another client, or to an HCA, that has not been
 * answered. */
struct opensm_request {
    struct ovs_list node;       /* In 'requests'. */
    long long int deadline;
    int from;                   /* Number of the client. */
    int to;                     /* The same, or TO_HCA. */
    struct fabric_ibsim_packet packet;
};
#define TO_HCA -1

/* How a queue pair of an HCA talks to the manager, which only knows its LID
 * and its number. */
struct opensm_peer {
    struct hmap_node node;      /* In 'peers', by port and queue pair. */
    struct fabric_peer peer;
};

/* Management datagrams: the header. */

static uint8_t
mad_class(const struct fabric_ibsim_packet *packet)
{
    return packet->mad[1];
}

static uint8_t
mad_method(const struct fabric_ibsim_packet *packet)
{
    return packet->mad[3];
}

static uint64_t
mad_tid(const struct fabric_ibsim_packet *packet)
{
    ovs_be64 tid;

    memcpy(&tid, packet->mad + 8, sizeof tid);
    return ntohll(tid);
}

static void
mad_set_tid(struct fabric_ibsim_packet *packet, uint64_t tid)
{
    ovs_be64 tid_be = htonll(tid);

    memcpy(packet->mad + 8, &tid_be, sizeof tid_be);
}

static bool
mad_is_response(const struct fabric_ibsim_packet *packet)
{
    return (mad_method(packet) & IB_METHOD_RESP
            || mad_method(packet) == FABRIC_METHOD_TRAP_REPRESS);
}

/* The peers. */

static uint32_t
hash_peer(const struct fabric_port *port, uint32_t qpn)
{
    return hash_pointer(port, qpn);
}

static struct opensm_peer *
find_peer(const struct fabric_opensm *opensm, const struct fabric_port *port,
          uint32_t qpn)
{
    struct opensm_peer *p;

    HMAP_FOR_EACH_WITH_HASH (p, node, hash_peer(port, qpn), &opensm->peers) {
        if (p->peer.port == port && p->peer.qpn == qpn) {
            return p;
        }
    }
    return NULL;
}

/* Forgets the peers of 'port', or all if 'port' is NULL. */
static void
forget_peers(struct fabric_opensm *opensm, const struct fabric_port *port)
{
    struct opensm_peer *p;

    HMAP_FOR_EACH_SAFE (p, node, &opensm->peers) {
        if (!port || p->peer.port == port) {
            hmap_remove(&opensm->peers, &p->node);
            free(p);
        }
    }
}

static void
remember_peer(struct fabric_opensm *opensm, const struct fabric_peer *peer)
{
    struct opensm_peer *p = find_peer(opensm, peer->port, peer->qpn);

    if (!p) {
        if (hmap_count(&opensm->peers) >= MAX_PEERS) {
            forget_peers(opensm, NULL);
        }
        p = xmalloc(sizeof *p);
        hmap_insert(&opensm->peers, &p->node,
                    hash_peer(peer->port, peer->qpn));
    }
    p->peer = *peer;
}

void
fabric_opensm_forget_port(struct fabric *fabric, struct fabric_port *port)
{
    if (fabric->opensm) {
        forget_peers(fabric->opensm, port);
    }
}

/* Sending to clients. */

static bool
send_to(struct fabric *fabric, struct fabric_ibsim_client *client,
        const struct fabric_ibsim_packet *packet)
{
    bool ok = fabric_ibsim_send(fabric->opensm->ibsim, client, packet);

    if (!ok) {
        fabric_count(fabric, NULL, FC_sm_overflow);
    }
    return ok;
}

/* Sends 'packet' back to 'client', which sent it, if it waits for an answer
 * that will not come. */
static void
bounce(struct fabric *fabric, struct fabric_ibsim_client *client,
       struct fabric_ibsim_packet *packet)
{
    fabric_count(fabric, NULL, FC_sm_undeliverable);
    if (!mad_is_response(packet)) {
        packet->status = htonl(FABRIC_IBSIM_UNDELIVERABLE);
        send_to(fabric, client, packet);
    }
}

/* Remembers the request 'packet', until an answer comes. */
static void
add_request(struct fabric_opensm *opensm,
            const struct fabric_ibsim_client *from, int to,
            const struct fabric_ibsim_packet *packet)
{
    struct opensm_request *request = xmalloc(sizeof *request);

    request->deadline = time_msec() + REQUEST_TIMEOUT_MS;
    request->from = from->id;
    request->to = to;
    request->packet = *packet;
    ovs_list_push_back(&opensm->requests, &request->node);
}

static void
remove_request(struct opensm_request *request)
{
    ovs_list_remove(&request->node);
    free(request);
}

/* Forgets requests to 'to' with the transaction ID 'tid', which was answered.
 * Bits in 'ignore' may be others in the request. */
static void
request_answered(struct fabric_opensm *opensm, int to, uint64_t tid,
                 uint64_t ignore)
{
    struct opensm_request *request;

    LIST_FOR_EACH_SAFE (request, node, &opensm->requests) {
        if (request->to == to
            && !((mad_tid(&request->packet) ^ tid) & ~ignore)) {
            remove_request(request);
        }
    }
}

/* Sends 'request' back. */
static void
request_failed(struct fabric *fabric, struct opensm_request *request)
{
    struct fabric_ibsim_client *client;

    client = fabric_ibsim_client(fabric->opensm->ibsim, request->from);
    if (client) {
        bounce(fabric, client, &request->packet);
    }
    remove_request(request);
}

/* Sends requests back that no answer will come to. */
static void
run_requests(struct fabric *fabric)
{
    struct fabric_opensm *opensm = fabric->opensm;
    struct opensm_request *request;

    LIST_FOR_EACH_SAFE (request, node, &opensm->requests) {
        if (time_msec() >= request->deadline
            || (request->to != TO_HCA
                && !fabric_ibsim_client(opensm->ibsim, request->to))) {
            request_failed(fabric, request);
        }
    }
}

/* Sends the answer 'packet' to 'client', which sent the request. */
static void
reply(struct fabric *fabric, struct fabric_ibsim_client *client,
      struct fabric_ibsim_packet *packet)
{
    ovs_be16 lid = packet->slid.lid;
    ovs_be32 qpn = packet->sqpn;

    packet->slid.lid = packet->dlid.lid;
    packet->dlid.lid = lid;
    packet->sqpn = packet->dqpn;
    packet->dqpn = qpn;
    send_to(fabric, client, packet);
}

/* Brings the response 'packet' of 'from' to the client whose request it
 * answers. */
static void
send_response(struct fabric *fabric, const struct fabric_ibsim_client *from,
              struct fabric_ibsim_packet *packet)
{
    bool repress = mad_method(packet) == FABRIC_METHOD_TRAP_REPRESS;
    uint64_t tid = mad_tid(packet);
    unsigned int id = (tid >> TID_CLIENT_SHIFT) - 1;
    struct fabric_ibsim_client *client;

    if (repress && !(tid >> TID_CLIENT_SHIFT)) {
        /* It was an agent's trap. */
        return;
    }
    request_answered(fabric->opensm, from->id, tid,
                     repress ? TID_AGENT_MASK : 0);

    client = fabric_ibsim_client(fabric->opensm->ibsim, id);
    if (client) {
        send_to(fabric, client, packet);
    } else {
        fabric_count(fabric, NULL, FC_sm_undeliverable);
    }
}

/* Brings the request 'packet' of 'client' to the manager on the node of 'to',
 * if there is one. */
static void
send_request(struct fabric *fabric, struct fabric_ibsim_client *client,
             struct fabric_ibsim_packet *packet, struct fabric_lport *to)
{
    const struct fabric_lport *from = client->node;
    struct fabric_ibsim_client *sm;
    uint64_t tid = mad_tid(packet);

    sm = fabric_ibsim_find_sm(fabric->opensm->ibsim, to);
    if (!sm) {
        bounce(fabric, client, packet);
        return;
    }
    tid &= (UINT64_C(1) << TID_CLIENT_SHIFT) - 1;
    mad_set_tid(packet, tid | (uint64_t) (client->id + 1) << TID_CLIENT_SHIFT);
    if (!packet->slid.lid) {
        packet->slid.lid = from->info.lid;
    }
    if (send_to(fabric, sm, packet)) {
        add_request(fabric->opensm, client, sm->id, packet);
    } else {
        bounce(fabric, client, packet);
    }
}

/* Subnet management. */

static void
lport_changed(struct fabric_lport *lport, bool reregister, void *fabric_)
{
    struct fabric *fabric = fabric_;

    if (lport->node->hca) {
        fabric_port_sync(fabric, lport->node->hca, reregister);
    } else if (lport->node->sm_host && lport->info.sm_lid) {
        fabric->sm->lid = ntohs(lport->info.sm_lid);
    }
}

/* Handles the packet 'packet' of class SubnMgt from 'client'. */
static void
receive_smp(struct fabric *fabric, struct fabric_ibsim_client *client,
            struct fabric_ibsim_packet *packet)
{
    struct fabric_smp *smp = ALIGNED_CAST(struct fabric_smp *, packet->mad);
    struct fabric_lport *at;

    if (mad_is_response(packet)) {
        send_response(fabric, client, packet);
        return;
    }
    at = (smp->mgmt_class == FABRIC_CLASS_SUBN_DR
          ? fabric_sma_walk(client->node, smp)
          : fabric_route(fabric->topology, client->node,
                         ntohs(packet->dlid.lid)));
    if (!at) {
        bounce(fabric, client, packet);
    } else if (mad_method(packet) == FABRIC_METHOD_TRAP) {
        /* A standby's for the master: 144, it is there or has a higher
         * priority.  For OpenSM it is a request like any other: it starts no
         * sweep before TrapRepress has come, or the trap comes back since the
         * other is not the master (any more) and therefore said nothing. */
        send_request(fabric, client, packet, at);
    } else if (smp->attr_id != htons(FABRIC_ATTR_SM_INFO)) {
        fabric_count(fabric, NULL, FC_sm_smps);
        fabric_sma_handle(at, smp, lport_changed, fabric);
        reply(fabric, client, packet);
    } else if (at->node->sm_host) {
        send_request(fabric, client, packet, at);
    } else {
        fabric_sma_refuse(smp);
        reply(fabric, client, packet);
    }
}

/* Subnet administration. */

/* Sends 'packet' from the node of 'from' to queue pair 'qpn' of 'port'. */
static void
send_to_hca(struct fabric *fabric, struct fabric_lport *from,
            struct fabric_port *port, const struct fabric_ibsim_packet *packet)
{
    uint32_t qpn = ntohl(packet->dqpn) & IB_QPN_MASK;
    struct opensm_peer *p = find_peer(fabric->opensm, port, qpn);
    struct fabric_peer peer = {
        .port = port,
        .qpn = qpn,
        .pkey = IB_PKEY_DEFAULT,
    };
    struct ib_sa_mad mad;

    if (p) {
        peer = p->peer;
    }
    peer.lid = ntohs(packet->dlid.lid);
    peer.sm_lid = fabric_lport_lid(from);
    memcpy(&mad, packet->mad, sizeof mad);
    fabric_count(fabric, port, (mad.method == IB_METHOD_REPORT
                                ? FC_sa_reports
                                : mad.status ? FC_sa_refusals
                                : FC_sa_answers));
    fabric_forward_from_sm(fabric, &peer, &mad);
}

/* Handles the packet 'packet' of class SubnAdm from 'client'. */
static void
receive_gmp(struct fabric *fabric, struct fabric_ibsim_client *client,
            struct fabric_ibsim_packet *packet)
{
    struct fabric_lport *to = fabric_route(fabric->topology, client->node,
                                           ntohs(packet->dlid.lid));
    bool for_hca = (mad_is_response(packet)
                    || mad_method(packet) == IB_METHOD_REPORT);

    if (to && to->node->hca && for_hca) {
        if (!mad_is_response(packet)) {
            add_request(fabric->opensm, client, TO_HCA, packet);
        }
        send_to_hca(fabric, client->node, to->node->hca, packet);
    } else if (!to || !to->node->sm_host) {
        bounce(fabric, client, packet);
    } else if (mad_is_response(packet)) {
        send_response(fabric, client, packet);
    } else {
        send_request(fabric, client, packet, to);
    }
}

static void
receive_cb(void *fabric, struct fabric_ibsim_client *client,
           struct fabric_ibsim_packet *packet)
{
    switch (mad_class(packet)) {
    case FABRIC_CLASS_SUBN:
    case FABRIC_CLASS_SUBN_DR:
        receive_smp(fabric, client, packet);
        break;
    case IB_MGMT_CLASS_SA:
        receive_gmp(fabric, client, packet);
        break;
    default:
        bounce(fabric, client, packet);
        break;
    }
}

/* Brings 'mad', which 'peer' sent to the manager, there. */
static void
carry_cb(struct fabric *fabric, const struct fabric_peer *peer,
         const struct ib_sa_mad *mad)
{
    struct fabric_opensm *opensm = fabric->opensm;
    struct fabric_lport *to = fabric_route(fabric->topology,
                                           peer->port->lport, peer->sm_lid);
    struct fabric_ibsim_client *sm = fabric_ibsim_find_sm(opensm->ibsim, to);
    struct fabric_ibsim_packet packet;

    if (!sm) {
        fabric_count(fabric, peer->port, FC_sa_down);
        return;
    }
    if (mad->method == IB_METHOD_REPORT_RESP) {
        uint64_t tid = ((uint64_t) ntohl(mad->tid.hi) << 32
                        | ntohl(mad->tid.lo));

        request_answered(opensm, TO_HCA, tid, 0);
    }
    remember_peer(opensm, peer);
    memset(&packet, 0, sizeof packet);
    packet.dlid.lid = htons(peer->sm_lid);
    packet.slid.lid = htons(peer->lid);
    packet.dqpn = htonl(IB_QPN_GSI);
    packet.sqpn = htonl(peer->qpn);
    packet.length = htonll(IB_MAD_LEN);
    memcpy(packet.mad, mad, sizeof packet.mad);
    if (!send_to(fabric, sm, &packet)) {
        fabric_count(fabric, peer->port, FC_sa_down);
    }
}

/* Traps. */

/* Returns when 'node' has to tell the manager that something happened. */
static long long int
trap_due(const struct fabric_node *node)
{
    const struct fabric_lport *lport = fabric_node_lid_port(node);

    return ((node->port_change || node->changed) && lport->info.sm_lid
            && lport->state == FABRIC_PORT_ACTIVE
            ? node->trap_at : LLONG_MAX);
}

static void
send_trap(struct fabric *fabric, struct fabric_node *node)
{
    struct fabric_lport *lport = fabric_node_lid_port(node);
    uint16_t sm_lid = ntohs(lport->info.sm_lid);
    struct fabric_ibsim_packet packet;
    struct fabric_ibsim_client *sm;

    node->trap_at = time_msec() + (TRAP_INTERVAL_MS
                                   << MIN(node->n_traps, TRAP_MAX_DOUBLED));
    node->n_traps++;
    sm = fabric_ibsim_find_sm(fabric->opensm->ibsim,
                              fabric_route(fabric->topology, lport, sm_lid));
    if (sm) {
        memset(&packet, 0, sizeof packet);
        packet.dlid.lid = htons(sm_lid);
        packet.slid.lid = lport->info.lid;
        packet.length = htonll(IB_MAD_LEN);
        fabric_sma_compose_trap(node, fabric->opensm->next_tid++,
                                ALIGNED_CAST(struct fabric_smp *,
                                             packet.mad));
        if (!node->port_change) {
            node->changed = false;
            node->n_traps = 0;
        }
        fabric_count(fabric, NULL, FC_sm_traps);
        send_to(fabric, sm, &packet);
    }
}

void
fabric_opensm_run(struct fabric *fabric)
{
    if (fabric->opensm) {
        struct fabric_node *node;

        fabric_ibsim_run(fabric->opensm->ibsim);
        run_requests(fabric);
        LIST_FOR_EACH (node, list_node, &fabric->topology->nodes) {
            if (time_msec() >= trap_due(node)) {
                send_trap(fabric, node);
            }
        }
    }
}

void
fabric_opensm_wait(struct fabric *fabric)
{
    if (fabric->opensm) {
        struct fabric_node *node;

        fabric_ibsim_wait(fabric->opensm->ibsim);
        if (!ovs_list_is_empty(&fabric->opensm->requests)) {
            const struct opensm_request *request = CONTAINER_OF(
                ovs_list_front(&fabric->opensm->requests),
                struct opensm_request, node);

            poll_timer_wait_until(request->deadline);
        }
        LIST_FOR_EACH (node, list_node, &fabric->topology->nodes) {
            long long int due = trap_due(node);

            if (due != LLONG_MAX) {
                poll_timer_wait_until(due);
            }
        }
    }
}

/* What clients ask for. */

static void *
find_node_cb(void *fabric_, char name[FABRIC_IBSIM_NODE_LEN])
{
    struct fabric *fabric = fabric_;

    for (size_t i = 0; i < N_SM_HOSTS; i++) {
        if (!*name || !strcmp(name, sm_hosts[i])) {
            ovs_strzcpy(name, sm_hosts[i], FABRIC_IBSIM_NODE_LEN);
            return fabric->opensm->hosts[i];
        }
    }
    return NULL;
}

static void
node_info_cb(void *fabric OVS_UNUSED, void *lport, uint8_t data[64])
{
    fabric_sma_node_info(lport, data);
}

static void
port_info_cb(void *fabric OVS_UNUSED, void *lport, uint8_t data[64])
{
    fabric_sma_port_info(lport, data);
}

static void
pkeys_cb(void *fabric OVS_UNUSED, void *lport_, ovs_be16 pkeys[32])
{
    struct fabric_lport *lport = lport_;

    memcpy(pkeys, lport->pkeys, 32 * sizeof *pkeys);
}

static void
sm_changed_cb(void *fabric_, struct fabric_ibsim_client *client)
{
    struct fabric *fabric = fabric_;
    struct fabric_lport *lport = client->node;
    bool is_sm = fabric_ibsim_find_sm(fabric->opensm->ibsim, lport) != NULL;
    ovs_be32 bit = htonl(FABRIC_CAP_IS_SM);

    VLOG_INFO_RL(&rl, "%s: %s", lport->node->sm_host,
                 is_sm ? "a subnet manager is there" : "no subnet manager");
    lport->info.cap_mask = ((lport->info.cap_mask & ~bit)
                            | (is_sm ? bit : 0));
    lport->node->changed = true;
    lport->node->trap_at = 0;
}

static const struct fabric_ibsim_ops ibsim_ops = {
    .find_node = find_node_cb,
    .node_info = node_info_cb,
    .port_info = port_info_cb,
    .pkeys = pkeys_cb,
    .sm_changed = sm_changed_cb,
    .receive = receive_cb,
};

/* Coming and going. */

static void
create_hosts(struct fabric *fabric)
{
    for (size_t i = 0; i < N_SM_HOSTS; i++) {
        uint64_t guid = FABRIC_SM_GUID + i * SM_HOST_STEP;
        char description[64] = "";
        struct fabric_lport *lport;

        ovs_strlcpy(description, sm_hosts[i], sizeof description);
        lport = fabric_plug(fabric->topology, guid - 1, guid,
                            fabric->cfg.mtu, description,
                            i ? fabric->topology->n_switches - 1 : 0);
        lport->node->sm_host = sm_hosts[i];
        fabric->opensm->hosts[i] = lport;
    }
}

/* Makes 'fabric' one of 'n_switches' switches that wait for OpenSM in the
 * simulation 'name'.  To be called before fabric_ports_init().  Returns NULL,
 * or an error, which the caller must free. */
char *
fabric_opensm_create(struct fabric *fabric, const char *name, int n_switches)
{
    struct fabric_opensm *opensm = xzalloc(sizeof *opensm);
    struct fabric_link_config links = {
        .mtu = fabric->cfg.mtu,
        .width = fabric->cfg.width,
        .speed = fabric->cfg.speed,
    };
    char *error;

    error = fabric_ibsim_open(name, &ibsim_ops, fabric, &opensm->ibsim);
    if (error) {
        free(opensm);
        return error;
    }
    hmap_init(&opensm->peers);
    ovs_list_init(&opensm->requests);
    opensm->next_tid = 1;
    fabric->opensm = opensm;
    fabric->topology = fabric_topology_create(n_switches, &links);
    create_hosts(fabric);
    fabric->sm_carry = carry_cb;
    return NULL;
}

void
fabric_opensm_destroy(struct fabric *fabric)
{
    struct fabric_opensm *opensm = fabric->opensm;

    if (opensm) {
        struct opensm_request *request;

        LIST_FOR_EACH_SAFE (request, node, &opensm->requests) {
            remove_request(request);
        }
        fabric_ibsim_close(opensm->ibsim);
        forget_peers(opensm, NULL);
        hmap_destroy(&opensm->peers);
        fabric_topology_destroy(fabric->topology);
        free(opensm);
    }
}

/* Showing. */

const char *
fabric_opensm_name(const struct fabric *fabric)
{
    return fabric_ibsim_name(fabric->opensm->ibsim);
}

/* True if there is a subnet manager, be it a standby. */
bool
fabric_opensm_is_up(const struct fabric *fabric)
{
    const struct fabric_opensm *opensm = fabric->opensm;

    for (size_t i = 0; i < N_SM_HOSTS; i++) {
        if (fabric_ibsim_find_sm(opensm->ibsim, opensm->hosts[i])) {
            return true;
        }
    }
    return false;
}

static void
format_lport(struct fabric_lport *lport, struct ds *ds)
{
    const struct fabric_node *node = lport->node;

    if (node->hca) {
        ds_put_char(ds, '"');
        fabric_port_format_description(node->hca, ds);
        ds_put_format(ds, "\" %016"PRIx64, node->port_guid);
    } else if (node->sm_host) {
        ds_put_format(ds, "%s %016"PRIx64, node->sm_host, node->port_guid);
    } else {
        ds_put_format(ds, "switch %d port %d", node->index + 1, lport->num);
    }
}

/* Appends the switches and what is on their ports to 'ds'. */
void
fabric_opensm_format(const struct fabric *fabric, struct ds *ds)
{
    const struct fabric_topology *topology = fabric->topology;

    for (int i = 0; i < topology->n_switches; i++) {
        const struct fabric_node *sw = topology->switches[i];

        ds_put_format(ds, "switch %d: LID %"PRIu16"\n", i + 1,
                      fabric_lport_lid(&sw->ports[0]));
        for (int j = 1; j <= sw->n_ports; j++) {
            const struct fabric_lport *lport = &sw->ports[j];

            if (lport->peer) {
                ds_put_format(ds, "  port %d: %s, ", j,
                              fabric_port_state_to_string(lport->state));
                format_lport(lport->peer, ds);
                ds_put_char(ds, '\n');
            }
        }
    }
}

/* The same as JSON. */
struct json *
fabric_opensm_to_json(const struct fabric *fabric)
{
    const struct fabric_topology *topology = fabric->topology;
    struct json *array = json_array_create_empty();

    for (int i = 0; i < topology->n_switches; i++) {
        const struct fabric_node *sw = topology->switches[i];
        struct json *j = json_object_create();
        struct json *ports = json_array_create_empty();

        json_object_put(j, "lid", json_integer_create(
                            fabric_lport_lid(&sw->ports[0])));
        for (int k = 1; k <= sw->n_ports; k++) {
            const struct fabric_lport *lport = &sw->ports[k];

            if (lport->peer) {
                struct json *p = json_object_create();
                struct ds ds = DS_EMPTY_INITIALIZER;

                format_lport(lport->peer, &ds);
                json_object_put(p, "port", json_integer_create(k));
                json_object_put_string(p, "state",
                                       fabric_port_state_to_string(
                                           lport->state));
                json_object_put_string(p, "peer", ds_cstr(&ds));
                json_array_add(ports, p);
                ds_destroy(&ds);
            }
        }
        json_object_put(j, "ports", ports);
        json_array_add(array, j);
    }
    return array;
}

/* True if a switch has an entry for the 'i'th multicast LID. */
static bool
group_is_used(const struct fabric_topology *topology, int i)
{
    for (int j = 0; j < topology->n_switches; j++) {
        if (topology->switches[j]->mft[i]) {
            return true;
        }
    }
    return false;
}

/* Returns how many multicast LIDs the switches forward. */
size_t
fabric_opensm_count_groups(const struct fabric *fabric)
{
    size_t n = 0;

    for (int i = 0; i < FABRIC_MFT_ENTRIES; i++) {
        n += group_is_used(fabric->topology, i);
    }
    return n;
}

/* Calls 'cb' for each HCA to which the 'i'th multicast LID goes. */
static void
for_each_receiver(const struct fabric_topology *topology, int i,
                  void (*cb)(const struct fabric_port *, void *aux),
                  void *aux)
{
    for (int j = 0; j < topology->n_switches; j++) {
        const struct fabric_node *sw = topology->switches[j];

        for (int k = 1; k <= sw->n_ports; k++) {
            if (sw->mft[i] >> k & 1 && sw->ports[k].peer
                && sw->ports[k].peer->node->hca) {
                cb(sw->ports[k].peer->node->hca, aux);
            }
        }
    }
}

static void
format_receiver(const struct fabric_port *port, void *ds)
{
    ds_put_format(ds, " %016"PRIx64, port->guid);
}

static void
receiver_to_json(const struct fabric_port *port, void *array)
{
    json_array_add(array, json_string_create_nocopy(
                       xasprintf("%016"PRIx64, port->guid)));
}

/* Appends the multicast LIDs that the switches forward, and to whom, to
 * 'ds'. */
void
fabric_opensm_format_groups(const struct fabric *fabric, struct ds *ds)
{
    for (int i = 0; i < FABRIC_MFT_ENTRIES; i++) {
        if (group_is_used(fabric->topology, i)) {
            ds_put_format(ds, "MLID 0x%04x ports", IB_LID_MULTICAST + i);
            for_each_receiver(fabric->topology, i, format_receiver, ds);
            ds_put_char(ds, '\n');
        }
    }
}

/* The same as JSON. */
struct json *
fabric_opensm_groups_to_json(const struct fabric *fabric)
{
    struct json *array = json_array_create_empty();

    for (int i = 0; i < FABRIC_MFT_ENTRIES; i++) {
        if (group_is_used(fabric->topology, i)) {
            struct json *j = json_object_create();
            struct json *ports = json_array_create_empty();

            json_object_put_format(j, "mlid", "0x%04x", IB_LID_MULTICAST + i);
            for_each_receiver(fabric->topology, i, receiver_to_json, ports);
            json_object_put(j, "ports", ports);
            json_array_add(array, j);
        }
    }
    return array;
}
