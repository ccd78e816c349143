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
#include "fabric-rmpp.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-forward.h"
#include "hash.h"
#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(fabric_rmpp);

static struct vlog_rate_limit rl = VLOG_RATE_LIMIT_INIT(5, 20);

/* An ACK that is missing for so long has the window sent again, so often. */
#define ACK_TIMEOUT_MS 300
#define MAX_RETRIES 5
/* Tables under way, to one port and in all. */
#define MAX_TABLES_PORT 64
#define MAX_TABLES 1024
#define MAX_BYTES (64 << 20)

/* SA header bytes that RMPP counts with each segment's payload. */
#define SA_HEADER_LEN 20
/* RRespTime 31: as long as it takes. */
#define RMPP_RESP_TIME (31 << 3)

/* RMPPStatus (13.6.2.1). */
#define RMPP_STATUS_INCONSISTENT_TYPE 121
#define RMPP_STATUS_WINDOW_TOO_SMALL 122
#define RMPP_STATUS_SEGMENT_TOO_BIG 123
#define RMPP_STATUS_BAD_VERSION 125
#define RMPP_STATUS_TOO_MANY_RETRIES 126

/* A table under way to one that asked. */
struct fabric_table {
    struct hmap_node node;      /* In 'tables' of struct fabric. */
    struct ovs_list timer_node; /* In 'table_timers', next to fire first. */
    long long int deadline;
    int retries;

    struct fabric_peer peer;
    struct ib_sa_mad header;    /* Of each segment. */
    uint8_t *data;
    size_t len;

    uint32_t n_segments;
    uint32_t window_first;      /* First segment that was not acknowledged. */
    uint32_t window_last;       /* Last one that may be sent. */
    uint32_t next;              /* Next one to send. */
};

void
fabric_rmpp_init(struct fabric *fabric)
{
    hmap_init(&fabric->tables);
    ovs_list_init(&fabric->table_timers);
}

static void
table_destroy(struct fabric *fabric, struct fabric_table *table)
{
    table->peer.port->n_tables--;
    fabric->table_bytes -= table->len;
    hmap_remove(&fabric->tables, &table->node);
    ovs_list_remove(&table->timer_node);
    free(table->data);
    free(table);
}

void
fabric_rmpp_forget_all(struct fabric *fabric)
{
    struct fabric_table *table;

    HMAP_FOR_EACH_SAFE (table, node, &fabric->tables) {
        table_destroy(fabric, table);
    }
}

void
fabric_rmpp_forget_port(struct fabric *fabric, struct fabric_port *port)
{
    struct fabric_table *table;

    if (!port->n_tables) {
        return;
    }
    HMAP_FOR_EACH_SAFE (table, node, &fabric->tables) {
        if (table->peer.port == port) {
            table_destroy(fabric, table);
        }
    }
}

void
fabric_rmpp_destroy(struct fabric *fabric)
{
    fabric_rmpp_forget_all(fabric);
    hmap_destroy(&fabric->tables);
}

static uint32_t
hash_table(const struct fabric_peer *peer, ovs_32aligned_be64 tid)
{
    return hash_3words(hash_pointer(peer->port, 0), peer->qpn,
                       hash_bytes(&tid, sizeof tid, 0));
}

static struct fabric_table *
find_table(const struct fabric *fabric, const struct fabric_peer *peer,
           const struct ib_sa_mad *mad)
{
    struct fabric_table *table;

    HMAP_FOR_EACH_WITH_HASH (table, node, hash_table(peer, mad->tid),
                             &fabric->tables) {
        if (table->peer.port == peer->port && table->peer.qpn == peer->qpn
            && !memcmp(&table->header.tid, &mad->tid, sizeof mad->tid)) {
            return table;
        }
    }
    return NULL;
}

static void
restart_timer(struct fabric *fabric, struct fabric_table *table)
{
    table->deadline = time_msec() + ACK_TIMEOUT_MS;
    ovs_list_remove(&table->timer_node);
    ovs_list_push_back(&fabric->table_timers, &table->timer_node);
}

static void
send_segment(struct fabric *fabric, const struct fabric_table *table,
             uint32_t number)
{
    size_t offset = (size_t) (number - 1) * IB_SA_DATA_LEN;
    size_t n = MIN(IB_SA_DATA_LEN, table->len - offset);
    bool first = number == 1;
    bool last = number == table->n_segments;
    struct ib_sa_mad mad = table->header;
    uint32_t paylen = 0;

    if (last) {
        paylen = n + SA_HEADER_LEN;
    } else if (first) {
        paylen = table->len + SA_HEADER_LEN * table->n_segments;
    }
    mad.rmpp_version = IB_RMPP_VERSION;
    mad.rmpp_type = IB_RMPP_TYPE_DATA;
    mad.rmpp_flags = (RMPP_RESP_TIME | IB_RMPP_FLAG_ACTIVE
                      | (first ? IB_RMPP_FLAG_FIRST : 0)
                      | (last ? IB_RMPP_FLAG_LAST : 0));
    mad.rmpp_data1 = htonl(number);
    mad.rmpp_data2 = htonl(paylen);
    memset(mad.data, 0, sizeof mad.data);
    if (n) {
        memcpy(mad.data, table->data + offset, n);
    }
    fabric_forward_from_sm(fabric, &table->peer, &mad);
}

static void
send_window(struct fabric *fabric, struct fabric_table *table)
{
    uint32_t last = MIN(table->window_last, table->n_segments);

    while (table->next <= last) {
        send_segment(fabric, table, table->next++);
    }
    restart_timer(fabric, table);
}

/* Tells 'peer' that the transaction of 'mad' is over. */
static void
send_abort(struct fabric *fabric, const struct fabric_peer *peer,
           const struct ib_sa_mad *mad, uint8_t status)
{
    struct ib_sa_mad abort_mad = *mad;

    abort_mad.method = IB_METHOD_GET_TABLE_RESP;
    abort_mad.rmpp_version = IB_RMPP_VERSION;
    abort_mad.rmpp_type = IB_RMPP_TYPE_ABORT;
    abort_mad.rmpp_flags = IB_RMPP_FLAG_ACTIVE;
    abort_mad.rmpp_status = status;
    abort_mad.rmpp_data1 = abort_mad.rmpp_data2 = 0;
    memset(abort_mad.data, 0, sizeof abort_mad.data);
    fabric_forward_from_sm(fabric, peer, &abort_mad);
    fabric_count(fabric, peer->port, FC_rmpp_aborts);
}

static void
abort_table(struct fabric *fabric, struct fabric_table *table, uint8_t status)
{
    VLOG_DBG_RL(&rl, "port %016"PRIx64": table aborted, RMPP status %"PRIu8,
                table->peer.port->guid, status);
    send_abort(fabric, &table->peer, &table->header, status);
    table_destroy(fabric, table);
}

/* Starts to send the 'n' bytes at 'data', which it takes over, to 'peer', with
 * 'header' on each segment.  Returns false if there are too many tables under
 * way. */
bool
fabric_rmpp_start(struct fabric *fabric, const struct fabric_peer *peer,
                  const struct ib_sa_mad *header, void *data, size_t n)
{
    struct fabric_table *table = find_table(fabric, peer, header);

    if (table) {
        /* The request came again: start over. */
        table_destroy(fabric, table);
    }
    if (peer->port->n_tables >= MAX_TABLES_PORT
        || hmap_count(&fabric->tables) >= MAX_TABLES
        || fabric->table_bytes + n > MAX_BYTES) {
        free(data);
        return false;
    }
    table = xzalloc(sizeof *table);
    table->peer = *peer;
    table->header = *header;
    table->data = data;
    table->len = n;
    table->n_segments = MAX(1, DIV_ROUND_UP(n, IB_SA_DATA_LEN));
    table->window_first = table->window_last = table->next = 1;
    hmap_insert(&fabric->tables, &table->node,
                hash_table(peer, header->tid));
    ovs_list_init(&table->timer_node);
    peer->port->n_tables++;
    fabric->table_bytes += n;
    fabric_count(fabric, peer->port, FC_rmpp_tables);
    send_window(fabric, table);
    return true;
}

static void
handle_ack(struct fabric *fabric, struct fabric_table *table,
           const struct ib_sa_mad *mad)
{
    uint32_t segment = ntohl(mad->rmpp_data1);
    uint32_t window_last = ntohl(mad->rmpp_data2);

    if (segment >= table->next) {
        abort_table(fabric, table, RMPP_STATUS_SEGMENT_TOO_BIG);
        return;
    }
    if (segment + 1 < table->window_first) {
        return;                 /* An old one, late. */
    }
    if (window_last < segment || window_last < table->window_last) {
        abort_table(fabric, table, RMPP_STATUS_WINDOW_TOO_SMALL);
        return;
    }
    if (segment >= table->n_segments) {
        table_destroy(fabric, table);
        return;
    }
    if (segment + 1 > table->window_first) {
        table->retries = 0;
    }
    table->window_first = segment + 1;
    table->window_last = window_last;
    send_window(fabric, table);
}

/* Handles 'mad' from 'peer' if it is part of a table's transaction: an ACK,
 * STOP or ABORT.  Returns false if it is a request. */
bool
fabric_rmpp_input(struct fabric *fabric, const struct fabric_peer *peer,
                  const struct ib_sa_mad *mad)
{
    struct fabric_table *table;

    if (!(mad->rmpp_flags & IB_RMPP_FLAG_ACTIVE)
        || mad->rmpp_type == IB_RMPP_TYPE_DATA) {
        return false;
    }
    table = find_table(fabric, peer, mad);
    if (!table) {
        fabric_count(fabric, peer->port, FC_rmpp_unexpected);
        return true;
    }
    if (mad->rmpp_type == IB_RMPP_TYPE_STOP
        || mad->rmpp_type == IB_RMPP_TYPE_ABORT) {
        table_destroy(fabric, table);
    } else if (mad->rmpp_version != IB_RMPP_VERSION) {
        abort_table(fabric, table, RMPP_STATUS_BAD_VERSION);
    } else if (mad->rmpp_type != IB_RMPP_TYPE_ACK) {
        abort_table(fabric, table, RMPP_STATUS_INCONSISTENT_TYPE);
    } else {
        handle_ack(fabric, table, mad);
    }
    return true;
}

void
fabric_rmpp_run(struct fabric *fabric)
{
    struct fabric_table *table;

    LIST_FOR_EACH_SAFE (table, timer_node, &fabric->table_timers) {
        if (table->deadline > time_msec()) {
            break;
        }
        if (table->retries++ >= MAX_RETRIES) {
            abort_table(fabric, table, RMPP_STATUS_TOO_MANY_RETRIES);
            continue;
        }
        fabric_count(fabric, table->peer.port, FC_rmpp_retries);
        table->next = table->window_first;
        send_window(fabric, table);
    }
}

void
fabric_rmpp_wait(struct fabric *fabric)
{
    if (!ovs_list_is_empty(&fabric->table_timers)) {
        struct fabric_table *table = CONTAINER_OF(
            ovs_list_front(&fabric->table_timers),
            struct fabric_table, timer_node);

        poll_timer_wait_until(table->deadline);
    }
}
