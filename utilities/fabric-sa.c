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
#include "fabric-sa.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-fault.h"
#include "fabric-forward.h"
#include "fabric-groups.h"
#include "fabric-inform.h"
#include "fabric-ports.h"
#include "fabric-rmpp.h"
#include "fabric-sa-records.h"
#include "openvswitch/ofpbuf.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_sa);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* Tokens that an answer costs; see token_bucket_init(). */
#define ANSWER_COST 1000

/* Trap, Report and TrapRepress: no requests. */
#define METHOD_TRAP 0x05
#define METHOD_TRAP_REPRESS 0x07

/* Requests that wait for their turn if there are too many for 'sa_rate':
 * beyond this, they are dropped. */
#define MAX_WAITING 1024

struct waiting_request {
    struct ovs_list node;       /* In 'sa_waiting' of struct fabric. */
    uint64_t guid;              /* Of 'peer.port', which may go. */
    struct fabric_peer peer;
    struct ib_sa_mad mad;
    uint64_t mask;
};

static fabric_sa_handler handle_inform;
static void serve(struct fabric *, const struct fabric_sa_request *);

/* What the subnet administrator answers. */
static const struct sa_attribute {
    uint16_t attr;
    uint8_t method;
    size_t record_len;
    fabric_sa_handler *handler;
} attributes[] = {
    { IB_ATTR_CLASS_PORT_INFO, IB_METHOD_GET,
      sizeof(struct ib_class_port_info), fabric_sa_class_port_info },
    { IB_ATTR_INFORM_INFO, IB_METHOD_SET,
      sizeof(struct ib_inform_info), handle_inform },
    { IB_ATTR_NODE_RECORD, IB_METHOD_GET,
      FABRIC_NODE_RECORD_LEN, fabric_sa_nodes },
    { IB_ATTR_NODE_RECORD, IB_METHOD_GET_TABLE,
      FABRIC_NODE_RECORD_LEN, fabric_sa_nodes },
    { IB_ATTR_PORT_INFO_RECORD, IB_METHOD_GET,
      FABRIC_PORT_INFO_RECORD_LEN, fabric_sa_port_infos },
    { IB_ATTR_PORT_INFO_RECORD, IB_METHOD_GET_TABLE,
      FABRIC_PORT_INFO_RECORD_LEN, fabric_sa_port_infos },
    { IB_ATTR_PATH_RECORD, IB_METHOD_GET,
      sizeof(struct ib_path_record), fabric_sa_paths },
    { IB_ATTR_PATH_RECORD, IB_METHOD_GET_TABLE,
      sizeof(struct ib_path_record), fabric_sa_paths },
    { IB_ATTR_MCMEMBER_RECORD, IB_METHOD_GET,
      sizeof(struct ib_mcmember_record), fabric_sa_mc_get },
    { IB_ATTR_MCMEMBER_RECORD, IB_METHOD_GET_TABLE,
      sizeof(struct ib_mcmember_record), fabric_sa_mc_get },
    { IB_ATTR_MCMEMBER_RECORD, IB_METHOD_SET,
      sizeof(struct ib_mcmember_record), fabric_sa_mc_join },
    { IB_ATTR_MCMEMBER_RECORD, IB_METHOD_DELETE,
      sizeof(struct ib_mcmember_record), fabric_sa_mc_leave },
};

void
fabric_sa_init(struct fabric *fabric)
{
    unsigned int burst = MAX(fabric->sa_rate / 10, 1);

    fabric->sm_down_until = LLONG_MIN;
    ovs_list_init(&fabric->sa_waiting);
    fabric->n_sa_waiting = 0;
    /* 'sa_rate' answers a second of 1000 tokens each are 'sa_rate' tokens a
     * millisecond. */
    token_bucket_init(&fabric->sa_bucket, fabric->sa_rate,
                      burst * ANSWER_COST);
}

static struct waiting_request *
pop_waiting(struct fabric *fabric)
{
    fabric->n_sa_waiting--;
    return CONTAINER_OF(ovs_list_pop_front(&fabric->sa_waiting),
                        struct waiting_request, node);
}

static void
forget_waiting(struct fabric *fabric)
{
    while (fabric->n_sa_waiting) {
        free(pop_waiting(fabric));
    }
}

void
fabric_sa_destroy(struct fabric *fabric)
{
    forget_waiting(fabric);
}

/* Handles what has waited for long enough.  A port that has gone meanwhile
 * hears no answer, and nothing may be kept for it, a subscription for
 * example: who forgets that when a port goes has been here already. */
static void
run_waiting(struct fabric *fabric)
{
    while (fabric->n_sa_waiting
           && token_bucket_withdraw(&fabric->sa_bucket, ANSWER_COST)) {
        struct waiting_request *w = pop_waiting(fabric);

        if (fabric_port_by_guid(fabric, w->guid) == w->peer.port
            && fabric_port_is_present(w->peer.port)) {
            struct fabric_sa_request request = {
                .peer = w->peer, .mad = &w->mad, .mask = w->mask,
            };

            serve(fabric, &request);
        }
        free(w);
    }
}

/* The subnet manager is away for 'down_ms', and comes back with no memory of
 * groups, subscriptions and transactions. */
void
fabric_sa_restart(struct fabric *fabric, long long int down_ms)
{
    fabric_rmpp_forget_all(fabric);
    fabric_inform_forget_all(fabric);
    forget_waiting(fabric);
    fabric->sm_down_until = time_msec() + down_ms;
    fabric_sa_run(fabric);
}

void
fabric_sa_run(struct fabric *fabric)
{
    run_waiting(fabric);
    if (fabric->sm_down_until != LLONG_MIN
        && time_msec() >= fabric->sm_down_until) {
        fabric->sm_down_until = LLONG_MIN;
        fabric_groups_forget(fabric);
        fabric_reregister_all(fabric);
    }
}

void
fabric_sa_wait(struct fabric *fabric)
{
    if (fabric->n_sa_waiting) {
        token_bucket_wait(&fabric->sa_bucket, ANSWER_COST);
    }
    if (fabric->sm_down_until != LLONG_MIN) {
        poll_timer_wait_until(fabric->sm_down_until);
    }
}

static uint16_t
handle_inform(struct fabric *fabric, const struct fabric_sa_request *request,
              struct ofpbuf *records)
{
    struct ib_inform_info inform;

    memcpy(&inform, request->mad->data, sizeof inform);
    memcpy(fabric_sa_add_record(records, sizeof inform), &inform,
           sizeof inform);
    return fabric_inform_set(fabric, &request->peer, &inform);
}

/* Turns the header of a request into that of its answer. */
static void
init_answer(const struct ib_sa_mad *request, struct ib_sa_mad *answer)
{
    *answer = *request;
    answer->method = (request->method == IB_METHOD_SET ? IB_METHOD_GET_RESP
                      : request->method | IB_METHOD_RESP);
    answer->rmpp_version = answer->rmpp_type = 0;
    answer->rmpp_flags = answer->rmpp_status = 0;
    answer->rmpp_data1 = answer->rmpp_data2 = 0;
    answer->attr_offset = 0;
}

/* Answers 'request' with 'status', and with the request's own data. */
static void
send_refusal(struct fabric *fabric, const struct fabric_sa_request *request,
             uint16_t status)
{
    struct ib_sa_mad answer;

    init_answer(request->mad, &answer);
    answer.status = htons(status);
    fabric_count(fabric, request->peer.port, FC_sa_refusals);
    VLOG_DBG_RL(&rl, "port %016"PRIx64": SA method 0x%02"PRIx8", attribute "
                "0x%04"PRIx16": %s", request->peer.port->guid,
                request->mad->method, ntohs(request->mad->attr_id),
                ib_sa_status_to_string(status));
    fabric_forward_from_sm(fabric, &request->peer, &answer);
}

/* Answers 'request' with 'records', each of which takes 'step' bytes and of
 * those uses 'size'. */
static void
send_records(struct fabric *fabric, const struct fabric_sa_request *request,
             struct ofpbuf *records, size_t size, size_t step)
{
    size_t n = records->size / step;
    struct ib_sa_mad answer;

    init_answer(request->mad, &answer);
    answer.status = 0;
    answer.attr_offset = htons(step / 8);
    if (request->mad->method == IB_METHOD_GET_TABLE) {
        size_t len = records->size;

        if (!fabric_rmpp_start(fabric, &request->peer, &answer,
                               len ? ofpbuf_steal_data(records) : NULL,
                               len)) {
            send_refusal(fabric, request, IB_MAD_STATUS_BUSY);
            return;
        }
    } else if (n != 1) {
        send_refusal(fabric, request, (n ? IB_SA_TOO_MANY_RECORDS
                                       : IB_SA_NO_RECORDS));
        return;
    } else {
        memset(answer.data, 0, sizeof answer.data);
        memcpy(answer.data, records->data, size);
        fabric_forward_from_sm(fabric, &request->peer, &answer);
    }
    fabric_count(fabric, request->peer.port, FC_sa_answers);
}

static void
handle_request(struct fabric *fabric, const struct fabric_sa_request *request)
{
    const struct ib_sa_mad *mad = request->mad;
    const struct sa_attribute *a;
    struct ofpbuf records;
    uint16_t status;

    if (mad->class_version != IB_SA_CLASS_VERSION) {
        send_refusal(fabric, request, IB_MAD_STATUS_BAD_VERSION);
        return;
    }
    for (a = attributes; a < &attributes[ARRAY_SIZE(attributes)]; a++) {
        if (a->attr == ntohs(mad->attr_id) && a->method == mad->method) {
            break;
        }
    }
    if (a >= &attributes[ARRAY_SIZE(attributes)]) {
        send_refusal(fabric, request, IB_MAD_STATUS_BAD_ATTR);
        return;
    }
    ofpbuf_init(&records, 0);
    status = a->handler(fabric, request, &records);
    if (status) {
        send_refusal(fabric, request, status);
    } else {
        send_records(fabric, request, &records, a->record_len,
                     ROUND_UP(a->record_len, 8));
    }
    ofpbuf_uninit(&records);
}

/* Lets 'request' wait for its turn. */
static void
put_off(struct fabric *fabric, const struct fabric_sa_request *request)
{
    struct waiting_request *w;

    if (fabric->n_sa_waiting >= MAX_WAITING) {
        fabric_count(fabric, request->peer.port, FC_sa_rate_limited);
        return;
    }
    w = xmalloc(sizeof *w);
    w->guid = request->peer.port->guid;
    w->peer = request->peer;
    w->mad = *request->mad;
    w->mask = request->mask;
    ovs_list_push_back(&fabric->sa_waiting, &w->node);
    fabric->n_sa_waiting++;
}

/* Applies what the user wants of the SA.  Returns true if 'request' is to be
 * handled. */
static bool
admit_request(struct fabric *fabric, const struct fabric_sa_request *request)
{
    struct fabric_port *port = request->peer.port;
    struct fabric_sa_verdict verdict;

    fabric_count(fabric, port, FC_sa_requests);
    if (fabric->sm_down_until != LLONG_MIN) {
        fabric_count(fabric, port, FC_sa_down);
        return false;
    }
    verdict = fabric_sa_fault_check(fabric, port, request->mad->method,
                                    ntohs(request->mad->attr_id));
    if (verdict.ignore || verdict.status) {
        fabric_count(fabric, port, FC_sa_faults);
        if (!verdict.ignore) {
            send_refusal(fabric, request, verdict.status);
        }
        return false;
    }
    if (fabric->sa_rate
        && (fabric->n_sa_waiting
            || !token_bucket_withdraw(&fabric->sa_bucket, ANSWER_COST))) {
        put_off(fabric, request);
        return false;
    }
    return true;
}

/* Handles 'request', whose turn it is. */
static void
serve(struct fabric *fabric, const struct fabric_sa_request *request)
{
    if (fabric->sm_carry) {
        fabric->sm_carry(fabric, &request->peer, request->mad);
    } else {
        handle_request(fabric, request);
    }
}

/* Leaves 'request' to an external manager, which knows no answers but those to
 * its Reports, and nothing of RMPP. */
static void
carry(struct fabric *fabric, const struct fabric_sa_request *request)
{
    const struct ib_sa_mad *mad = request->mad;

    if (mad->method == IB_METHOD_REPORT_RESP) {
        fabric->sm_carry(fabric, &request->peer, mad);
    } else if (mad->method & IB_METHOD_RESP
               || (mad->method >= METHOD_TRAP
                   && mad->method <= METHOD_TRAP_REPRESS)
               || mad->rmpp_type > IB_RMPP_TYPE_DATA) {
        fabric_count(fabric, request->peer.port, FC_drop_not_sa);
    } else if (admit_request(fabric, request)) {
        serve(fabric, request);
    }
}

/* Handles 'packet' to the subnet manager, from 'from'. */
void
fabric_sa_input(struct fabric *fabric, struct fabric_port *from,
                const struct fabric_packet *packet)
{
    size_t offset = sizeof(struct ib_soft_header);
    struct fabric_sa_request request;
    struct ib_sa_mad mad;
    struct ib_ud ud;

    if (ib_ud_parse((const uint8_t *) packet->msg + offset,
                    packet->len - offset, &ud)
        || ud.dqpn != IB_QPN_GSI || ud.qkey != IB_QKEY_GSI
        || ud.payload_len != sizeof mad) {
        fabric_count(fabric, from, FC_drop_not_sa);
        return;
    }
    memcpy(&mad, ud.payload, sizeof mad);
    if (mad.base_version != IB_MAD_BASE_VERSION
        || mad.mgmt_class != IB_MGMT_CLASS_SA) {
        fabric_count(fabric, from, FC_drop_not_sa);
        return;
    }

    request.peer = (struct fabric_peer) {
        .port = from,
        .lid = ud.slid,
        .sm_lid = ud.dlid,
        .qpn = ud.sqpn,
        .pkey = ud.pkey,
        .sl = ud.sl,
        .has_grh = ud.has_grh,
        .gid = ud.grh.sgid,
    };
    request.mad = &mad;
    request.mask = ((uint64_t) ntohl(mad.comp_mask[0]) << 32
                    | ntohl(mad.comp_mask[1]));

    if (fabric->sm_carry) {
        carry(fabric, &request);
        return;
    }
    if (fabric_inform_input(fabric, &request.peer, &mad)
        || fabric_rmpp_input(fabric, &request.peer, &mad)) {
        return;
    }
    if (mad.method & IB_METHOD_RESP
        || (mad.method >= METHOD_TRAP && mad.method <= METHOD_TRAP_REPRESS)) {
        fabric_count(fabric, from, FC_drop_not_sa);
        return;
    }
    if (admit_request(fabric, &request)) {
        serve(fabric, &request);
    }
}
