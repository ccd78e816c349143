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
#include "ipoib-sa-inform.h"

#include <stdlib.h>
#include <string.h>

#include "openvswitch/poll-loop.h"
#include "openvswitch/vlog.h"
#include "random.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_sa_inform);

#define INFORM_BACKOFF_MAX 16   /* Seconds, after 1, 2, 4 and 8. */
#define INFORM_REFRESH 300000   /* ms */

/* Components: LIDRangeBegin, IsGeneric, Subscribe, Type, TrapNumber,
 * ProducerType; and QPN, where a subscription ends. */
#define INFORM_MASK 0x10f2u
#define INFORM_MASK_QPN 0x100u

static const uint16_t inform_traps[] = {
    IB_TRAP_GROUP_CREATED, IB_TRAP_GROUP_DELETED
};

struct ipoib_inform {
    struct ipoib_sa *sa;
    ipoib_inform_cb *cb;
    void *aux;

    bool want;
    uint32_t qpn;
    bool active;                /* Reports come. */
    size_t next;                /* Of 'inform_traps', to be subscribed to. */
    struct ipoib_sa_request *request;
    unsigned int backoff;       /* Seconds. */
    long long int next_try;
    long long int now;          /* Of the last run. */
};

struct ipoib_inform *
ipoib_inform_create(struct ipoib_sa *sa, ipoib_inform_cb *cb, void *aux)
{
    struct ipoib_inform *inform = xzalloc(sizeof *inform);

    inform->sa = sa;
    inform->cb = cb;
    inform->aux = aux;
    return inform;
}

static void
inform_compose(struct ib_inform_info *info, uint16_t trap, bool subscribe,
               uint32_t qpn)
{
    memset(info, 0, sizeof *info);
    info->lid_begin = htons(0xffff);
    info->is_generic = 1;
    info->subscribe = subscribe;
    info->type = htons(0xffff);
    info->trap_number = htons(trap);
    info->qpn_resp = htonl(qpn << 8);
    info->producer = htonl(0xffffff);
}

/* Says once that no report is wanted any more; if that gets lost, the SA ends
 * it when nobody answers its reports. */
static void
inform_unsubscribe(struct ipoib_inform *inform)
{
    for (size_t i = 0; i < ARRAY_SIZE(inform_traps); i++) {
        struct ib_inform_info info;

        inform_compose(&info, inform_traps[i], false, inform->qpn);
        ipoib_sa_send_once(inform->sa, IB_METHOD_SET, IB_ATTR_INFORM_INFO,
                           INFORM_MASK | INFORM_MASK_QPN, &info, sizeof info);
    }
}

void
ipoib_inform_destroy(struct ipoib_inform *inform)
{
    if (inform) {
        ipoib_inform_want(inform, false);
        free(inform);
    }
}

void
ipoib_inform_restart(struct ipoib_inform *inform)
{
    ipoib_sa_cancel(inform->sa, inform->request);
    inform->request = NULL;
    inform->active = false;
    inform->next = 0;
    inform->backoff = 0;
    inform->next_try = 0;
}

void
ipoib_inform_want(struct ipoib_inform *inform, bool want)
{
    if (want != inform->want) {
        if (!want && (inform->active || inform->next || inform->request)) {
            inform_unsubscribe(inform);
        }
        inform->want = want;
        ipoib_inform_restart(inform);
    }
}

void
ipoib_inform_set_qpn(struct ipoib_inform *inform, uint32_t qpn)
{
    if (qpn != inform->qpn) {
        inform->qpn = qpn;
        ipoib_inform_restart(inform);
    }
}

static long long int
inform_now(const struct ipoib_inform *inform)
{
    return MAX(inform->now, time_msec());
}

bool
ipoib_inform_is_active(const struct ipoib_inform *inform)
{
    return inform->active;
}

static void
inform_failed(struct ipoib_inform *inform, const char *reason)
{
    inform->backoff = (inform->backoff
                       ? MIN(inform->backoff * 2, INFORM_BACKOFF_MAX) : 1);
    inform->next_try = inform_now(inform) + inform->backoff * 1000LL;
    if (inform->backoff == 4) {
        VLOG_INFO("the subnet administrator does not report new multicast "
                  "groups: %s", reason);
    } else {
        VLOG_DBG("subscription failed: %s", reason);
    }
}

static void
inform_answer(void *inform_, int error, uint16_t status,
              const struct ib_sa_mad *mad OVS_UNUSED)
{
    struct ipoib_inform *inform = inform_;

    inform->request = NULL;
    if (error || status) {
        inform_failed(inform, error ? ovs_strerror(error)
                              : ib_sa_status_to_string(status));
        return;
    }
    inform->backoff = 0;
    if (++inform->next < ARRAY_SIZE(inform_traps)) {
        inform->next_try = 0;
        return;
    }
    inform->next = 0;
    inform->active = true;
    inform->next_try = inform_now(inform) + INFORM_REFRESH
                       - random_range(INFORM_REFRESH / 4);
    inform->cb(inform->aux);
}

void
ipoib_inform_run(struct ipoib_inform *inform, long long int now)
{
    struct ib_inform_info info;

    inform->now = now;
    if (!inform->want || !inform->qpn || inform->request
        || now < inform->next_try) {
        return;
    }
    inform_compose(&info, inform_traps[inform->next], true, 0);
    inform->request = ipoib_sa_send(inform->sa, IB_METHOD_SET,
                                    IB_ATTR_INFORM_INFO, INFORM_MASK, &info,
                                    sizeof info, inform_answer, inform);
}

void
ipoib_inform_wait(const struct ipoib_inform *inform)
{
    if (inform->want && inform->qpn && !inform->request) {
        poll_timer_wait_until(inform->next_try);
    }
}
