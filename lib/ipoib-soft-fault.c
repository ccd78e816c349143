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
#include "ipoib-soft-private.h"

#include <string.h>
#include "ovs-thread.h"
#include "svec.h"
#include "unixctl.h"

/* Faults of queue pairs, for tests: what real devices do when something goes
 * wrong, on request. */

static struct ovs_mutex devices_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list devices OVS_GUARDED_BY(devices_mutex)
    = OVS_LIST_INITIALIZER(&devices);

static const char *const fault_names[] = {
    [SOFT_FAULT_NONE] = "none",
    [SOFT_FAULT_SQE] = "sqe",
    [SOFT_FAULT_ERR] = "err",
    [SOFT_FAULT_STALL_SEND] = "stall-send",
    [SOFT_FAULT_STALL_RECV] = "stall-recv",
};

static void
fault_strike(struct soft_hca *hca, struct soft_qp *qp, int fault)
{
    ovs_mutex_lock(&qp->sq_mutex);
    if (fault != SOFT_FAULT_STALL_SEND) {
        soft_send_unstall(qp);
    }
    if (fault == SOFT_FAULT_ERR) {
        ovs_mutex_lock(&qp->mutex);
        soft_qp_error(qp);
        ovs_mutex_unlock(&qp->mutex);
    } else {
        atomic_store_relaxed(&qp->fault, fault);
    }
    ovs_mutex_unlock(&qp->sq_mutex);
    if (fault == SOFT_FAULT_ERR) {
        soft_event_raise(hca, IBV_EVENT_QP_FATAL, &qp->qp);
    }
}

static void
fault_refuse(struct unixctl_conn *conn, const char *what, const char *reason)
{
    char *error = xasprintf("%s: %s", what, reason);

    unixctl_command_reply_error(conn, error);
    free(error);
}

/* Replies with the queue pairs that have a fault. */
static void
fault_list(struct unixctl_conn *conn)
{
    struct svec lines = SVEC_EMPTY_INITIALIZER;
    struct soft_hca *hca;
    char *reply;

    ovs_mutex_lock(&devices_mutex);
    LIST_FOR_EACH (hca, fault_node, &devices) {
        struct soft_qp *qp;

        ovs_mutex_lock(&hca->mutex);
        CMAP_FOR_EACH (qp, cmap_node, &hca->qps) {
            int fault;

            atomic_read_relaxed(&qp->fault, &fault);
            if (fault != SOFT_FAULT_NONE) {
                svec_add_nocopy(&lines, xasprintf("%s 0x%06"PRIx32" %s",
                                                  hca->full_name,
                                                  qp->qp.qp_num,
                                                  fault_names[fault]));
            }
        }
        ovs_mutex_unlock(&hca->mutex);
    }
    ovs_mutex_unlock(&devices_mutex);
    svec_sort(&lines);
    reply = svec_join(&lines, "\n", "\n");
    unixctl_command_reply(conn, lines.n ? reply : NULL);
    free(reply);
    svec_destroy(&lines);
}

/* "ipoib/soft/fault [DEVICE QPN FAULT]". */
static void
fault_command(struct unixctl_conn *conn, int argc, const char *argv[],
              void *aux OVS_UNUSED)
{
    struct soft_hca *hca;
    bool found = false;
    unsigned int qpn;
    int fault = -1;

    if (argc == 1) {
        fault_list(conn);
        return;
    } else if (argc < 4) {
        fault_refuse(conn, argv[1], "a queue pair number and a fault must "
                     "follow");
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(fault_names); i++) {
        if (!strcmp(argv[3], fault_names[i])) {
            fault = i;
        }
    }
    if (fault < 0) {
        fault_refuse(conn, argv[3], "no such fault");
        return;
    }
    if (!str_to_uint(argv[2], 0, &qpn)) {
        fault_refuse(conn, argv[2], "not a queue pair number");
        return;
    }
    ovs_mutex_lock(&devices_mutex);
    LIST_FOR_EACH (hca, fault_node, &devices) {
        if (!strcmp(hca->full_name, argv[1])) {
            struct soft_qp *qp;

            ovs_mutex_lock(&hca->mutex);
            qp = soft_qp_find(hca, qpn);
            if (qp) {
                fault_strike(hca, qp, fault);
                found = true;
            }
            ovs_mutex_unlock(&hca->mutex);
        }
    }
    ovs_mutex_unlock(&devices_mutex);
    if (found) {
        unixctl_command_reply(conn, NULL);
    } else {
        fault_refuse(conn, argv[2], "no such device or queue pair");
    }
}

void
soft_fault_add_device(struct soft_hca *hca)
{
    static struct ovsthread_once once = OVSTHREAD_ONCE_INITIALIZER;

    if (ovsthread_once_start(&once)) {
        unixctl_command_register("ipoib/soft/fault", "[DEVICE QPN FAULT]", 0,
                                 3, fault_command, NULL);
        ovsthread_once_done(&once);
    }
    ovs_mutex_lock(&devices_mutex);
    ovs_list_push_back(&devices, &hca->fault_node);
    ovs_mutex_unlock(&devices_mutex);
}

void
soft_fault_remove_device(struct soft_hca *hca)
{
    ovs_mutex_lock(&devices_mutex);
    ovs_list_remove(&hca->fault_node);
    ovs_mutex_unlock(&devices_mutex);
}
