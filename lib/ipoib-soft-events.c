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

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include "util.h"

/* Asynchronous events of the software HCA.
 *
 * 'ctx.async_fd' is an event file descriptor that is readable exactly while
 * the list of events is not empty. */

struct soft_event {
    struct ovs_list node;
    struct ibv_async_event event;
};

void
soft_events_init(struct soft_hca *hca)
{
    ovs_mutex_init(&hca->events.mutex);
    xpthread_cond_init(&hca->events.cond, NULL);
    ovs_list_init(&hca->events.list);
    hca->ctx.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

void
soft_events_destroy(struct soft_hca *hca)
{
    struct soft_event *e;

    LIST_FOR_EACH_POP (e, node, &hca->events.list) {
        free(e);
    }
    close(hca->ctx.async_fd);
    xpthread_cond_destroy(&hca->events.cond);
    ovs_mutex_destroy(&hca->events.mutex);
}

/* Whether an event is of a queue pair, a CQ or an SRQ.  Otherwise it is of
 * the port or the device. */
static bool
is_cq_event(enum ibv_event_type type)
{
    return type == IBV_EVENT_CQ_ERR;
}

static bool
is_srq_event(enum ibv_event_type type)
{
    return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

static bool
is_qp_event(enum ibv_event_type type)
{
    return (type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR
            || type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST
            || type == IBV_EVENT_SQ_DRAINED
            || type == IBV_EVENT_QP_LAST_WQE_REACHED);
}

static void *
event_element(const struct ibv_async_event *e)
{
    return (is_cq_event(e->event_type) ? (void *) e->element.cq
            : is_srq_event(e->event_type) ? (void *) e->element.srq
            : is_qp_event(e->event_type) ? (void *) e->element.qp : NULL);
}

static struct soft_event_count *
event_count(const struct ibv_async_event *e)
{
    return (is_cq_event(e->event_type)
            ? &soft_cq_cast(e->element.cq)->events
            : is_srq_event(e->event_type)
            ? &soft_srq_cast(e->element.srq)->events
            : is_qp_event(e->event_type)
            ? &soft_qp_cast(e->element.qp)->events : NULL);
}

/* Queues an event.  'element' is the QP, CQ or SRQ, or NULL for the port.
 * One that waits already is not queued again, which bounds the queue. */
void
soft_event_raise(struct soft_hca *hca, enum ibv_event_type type, void *element)
{
    struct ibv_async_event new = { .event_type = type };
    struct soft_event *e;
    uint64_t one = 1;

    if (element) {
        new.element.qp = element;
    } else {
        new.element.port_num = 1;
    }

    ovs_mutex_lock(&hca->events.mutex);
    LIST_FOR_EACH (e, node, &hca->events.list) {
        if (e->event.event_type == type
            && event_element(&e->event) == element) {
            goto out;
        }
    }
    e = xmalloc(sizeof *e);
    e->event = new;
    if (ovs_list_is_empty(&hca->events.list)) {
        ignore(write(hca->ctx.async_fd, &one, sizeof one));
    }
    ovs_list_push_back(&hca->events.list, &e->node);
out:
    ovs_mutex_unlock(&hca->events.mutex);
}

int
soft_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
    struct soft_hca *hca = soft_hca_cast(ctx);
    struct soft_event *e = NULL;
    uint64_t count;

    ovs_mutex_lock(&hca->events.mutex);
    if (!ovs_list_is_empty(&hca->events.list)) {
        e = CONTAINER_OF(ovs_list_pop_front(&hca->events.list),
                         struct soft_event, node);
        *event = e->event;
        if (event_count(event)) {
            event_count(event)->n_unacked++;
        }
        if (ovs_list_is_empty(&hca->events.list)) {
            ignore(read(hca->ctx.async_fd, &count, sizeof count));
        }
    }
    ovs_mutex_unlock(&hca->events.mutex);
    free(e);
    return e ? 0 : EAGAIN;
}

void
soft_ack_async_event(struct ibv_async_event *event)
{
    struct soft_event_count *count = event_count(event);
    struct soft_hca *hca;

    if (!count) {
        return;
    }
    /* Each kind of element has its context as its first member. */
    hca = soft_hca_cast(event->element.qp->context);
    ovs_mutex_lock(&hca->events.mutex);
    if (count->n_unacked) {
        count->n_unacked--;
    }
    xpthread_cond_broadcast(&hca->events.cond);
    ovs_mutex_unlock(&hca->events.mutex);
}

/* To be called before 'element' is destroyed: drops its events that nobody
 * has read, and waits until those that were read are acknowledged, as verbs
 * do. */
void
soft_event_forget(struct soft_hca *hca, void *element,
                  struct soft_event_count *count)
{
    struct soft_event *e;
    uint64_t n;

    ovs_mutex_lock(&hca->events.mutex);
    if (!ovs_list_is_empty(&hca->events.list)) {
        LIST_FOR_EACH_SAFE (e, node, &hca->events.list) {
            if (event_element(&e->event) == element) {
                ovs_list_remove(&e->node);
                free(e);
            }
        }
        if (ovs_list_is_empty(&hca->events.list)) {
            ignore(read(hca->ctx.async_fd, &n, sizeof n));
        }
    }
    while (count->n_unacked && !hca->closing) {
        ovs_mutex_cond_wait(&hca->events.cond, &hca->events.mutex);
    }
    ovs_mutex_unlock(&hca->events.mutex);
}
