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
#include "ipoib-verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"
#include "socket-util.h"
#include "sset.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_verbs_hw);

/* The verbs on libibverbs.
 *
 * libibverbs' functions return 0, -1 with errno, or an errno value, and some
 * providers do otherwise than others: to_errno() makes one convention of
 * them. */

static int
to_errno(int retval)
{
    return !retval ? 0 : retval > 0 ? retval : errno ? errno : EIO;
}

static void
hw_list_devices(struct sset *names)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    for (size_t i = 0; list && list[i]; i++) {
        sset_add(names, ibv_get_device_name(list[i]));
    }
    if (list) {
        ibv_free_device_list(list);
    }
}

/* "no InfiniBand device 'x' (there are: a, b)". */
static char *
no_device_message(const char *name)
{
    struct sset names = SSET_INITIALIZER(&names);
    struct ds ds = DS_EMPTY_INITIALIZER;

    ds_put_format(&ds, "no InfiniBand device '%s' ", name);
    hw_list_devices(&names);
    if (sset_is_empty(&names)) {
        ds_put_cstr(&ds, "(there is none)");
    } else {
        const char **sorted = sset_sort(&names);

        ds_put_cstr(&ds, "(there are: ");
        for (size_t i = 0; i < sset_count(&names); i++) {
            ds_put_format(&ds, "%s%s", i ? ", " : "", sorted[i]);
        }
        ds_put_char(&ds, ')');
        free(sorted);
    }
    sset_destroy(&names);
    return ds_steal_cstr(&ds);
}

/* Opens the device of the list 'list' that is called 'name'.  Returns NULL
 * with errno ENODEV if there is none. */
static struct ibv_context *
open_by_name(struct ibv_device **list, const char *name)
{
    for (size_t i = 0; list && list[i]; i++) {
        if (!strcmp(ibv_get_device_name(list[i]), name)) {
            struct ibv_context *ctx;

            errno = 0;
            ctx = ibv_open_device(list[i]);
            if (!ctx && (!errno || errno == ENODEV)) {
                errno = EIO;
            }
            return ctx;
        }
    }
    errno = ENODEV;
    return NULL;
}

/* A device with an Ethernet link layer (RoCE) opens as well: that is a matter
 * of the port, which query_port() tells ('link_layer'), and the caller's to
 * refuse. */
static struct ibv_context *
hw_open_device(const char *name, char **errp)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = open_by_name(list, name);
    int error = ctx ? set_nonblocking(ctx->async_fd) : errno;

    if (ctx && error) {
        ibv_close_device(ctx);
        ctx = NULL;
    }
    if (list) {
        ibv_free_device_list(list);
    }
    if (errp) {
        *errp = (ctx ? NULL
                 : error == ENODEV ? no_device_message(name)
                 : xasprintf("InfiniBand device '%s' cannot be opened: %s",
                             name, ovs_strerror(error)));
    }
    errno = error;
    return ctx;
}

static int
hw_close_device(struct ibv_context *ctx)
{
    return to_errno(ibv_close_device(ctx));
}

static int
hw_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    return to_errno(ibv_query_device(ctx, attr));
}

static int
hw_query_port(struct ibv_context *ctx, uint8_t port,
              struct ibv_port_attr *attr)
{
    return to_errno(ibv_query_port(ctx, port, attr));
}

static int
hw_query_gid(struct ibv_context *ctx, uint8_t port, int index,
             union ibv_gid *gid)
{
    return to_errno(ibv_query_gid(ctx, port, index, gid));
}

static int
hw_query_pkey(struct ibv_context *ctx, uint8_t port, int index,
              ovs_be16 *pkey)
{
    return to_errno(ibv_query_pkey(ctx, port, index, pkey));
}

static int
hw_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event)
{
    return to_errno(ibv_get_async_event(ctx, event));
}

static void
hw_ack_async_event(struct ibv_async_event *event)
{
    ibv_ack_async_event(event);
}

static struct ibv_pd *
hw_alloc_pd(struct ibv_context *ctx)
{
    return ibv_alloc_pd(ctx);
}

static int
hw_dealloc_pd(struct ibv_pd *pd)
{
    return to_errno(ibv_dealloc_pd(pd));
}

static struct ibv_mr *
hw_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
    return (ibv_reg_mr)(pd, addr, length, access);
}

static int
hw_dereg_mr(struct ibv_mr *mr)
{
    return to_errno(ibv_dereg_mr(mr));
}

static struct ibv_comp_channel *
hw_create_comp_channel(struct ibv_context *ctx)
{
    struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
    int error = channel ? set_nonblocking(channel->fd) : errno;

    if (channel && error) {
        ibv_destroy_comp_channel(channel);
        channel = NULL;
    }
    errno = error;
    return channel;
}

static int
hw_destroy_comp_channel(struct ibv_comp_channel *channel)
{
    return to_errno(ibv_destroy_comp_channel(channel));
}

static int
hw_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
                void **cq_context)
{
    return to_errno(ibv_get_cq_event(channel, cq, cq_context));
}

static void
hw_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
    ibv_ack_cq_events(cq, n);
}

static struct ibv_cq *
hw_create_cq(struct ibv_context *ctx, int cqe, void *cq_context,
             struct ibv_comp_channel *channel, int comp_vector)
{
    return ibv_create_cq(ctx, cqe, cq_context, channel, comp_vector);
}

static int
hw_destroy_cq(struct ibv_cq *cq)
{
    return to_errno(ibv_destroy_cq(cq));
}

static struct ibv_srq *
hw_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
    return ibv_create_srq(pd, attr);
}

static int
hw_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask)
{
    return to_errno(ibv_modify_srq(srq, attr, mask));
}

static int
hw_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
    return to_errno(ibv_query_srq(srq, attr));
}

static int
hw_destroy_srq(struct ibv_srq *srq)
{
    return to_errno(ibv_destroy_srq(srq));
}

/* Makes a queue pair that does not get its own multicast packets back, if
 * 'block_self', and takes IBV_WR_TSO, if 'tso'.  Returns NULL with errno set
 * if the device does not know of that, or for any other reason. */
static struct ibv_qp *
create_qp_ex(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
             bool block_self, bool tso)
{
    struct ibv_qp_init_attr_ex ex;
    struct ibv_qp *qp;

    memset(&ex, 0, sizeof ex);
    ex.qp_context = attr->qp_context;
    ex.send_cq = attr->send_cq;
    ex.recv_cq = attr->recv_cq;
    ex.srq = attr->srq;
    ex.cap = attr->cap;
    ex.qp_type = attr->qp_type;
    ex.sq_sig_all = attr->sq_sig_all;
    ex.comp_mask = IBV_QP_INIT_ATTR_PD;
    ex.pd = pd;
    if (block_self) {
        ex.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
        ex.create_flags = IBV_QP_CREATE_BLOCK_SELF_MCAST_LB;
    }
    if (tso) {
        ex.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
        ex.max_tso_header = IPOIB_VERBS_TSO_HEADER;
    }
    qp = ibv_create_qp_ex(pd->context, &ex);
    if (qp) {
        attr->cap = ex.cap;
    }
    return qp;
}

static struct ibv_qp *
hw_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr,
             bool block_self_mcast)
{
    if (block_self_mcast) {
        struct ibv_qp *qp = create_qp_ex(pd, attr, true, false);

        if (qp) {
            return qp;
        }
        VLOG_DBG("%s: no IBV_QP_CREATE_BLOCK_SELF_MCAST_LB (%s)",
                 ibv_get_device_name(pd->context->device),
                 ovs_strerror(errno));
    }
    return ibv_create_qp(pd, attr);
}

static uint32_t
hw_max_tso(struct ibv_context *ctx)
{
    struct ibv_device_attr_ex attr;

    memset(&attr, 0, sizeof attr);
    return (!ibv_query_device_ex(ctx, NULL, &attr)
            && attr.tso_caps.supported_qpts & (1u << IBV_QPT_UD)
            ? attr.tso_caps.max_tso : 0);
}

static struct ibv_qp *
hw_create_tso_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    struct ibv_qp *qp = create_qp_ex(pd, attr, true, true);

    return qp ? qp : create_qp_ex(pd, attr, false, true);
}

static int
hw_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    return to_errno(ibv_modify_qp(qp, attr, mask));
}

static int
hw_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
            struct ibv_qp_init_attr *init)
{
    struct ibv_qp_init_attr dummy;

    return to_errno(ibv_query_qp(qp, attr, mask, init ? init : &dummy));
}

static int
hw_destroy_qp(struct ibv_qp *qp)
{
    return to_errno(ibv_destroy_qp(qp));
}

static struct ibv_ah *
hw_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
    return ibv_create_ah(pd, attr);
}

static int
hw_destroy_ah(struct ibv_ah *ah)
{
    return to_errno(ibv_destroy_ah(ah));
}

static int
hw_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return to_errno(ibv_attach_mcast(qp, gid, lid));
}

static int
hw_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
    return to_errno(ibv_detach_mcast(qp, gid, lid));
}

static bool
hw_port_needs_grh(struct ibv_context *ctx, uint8_t port)
{
    struct ibv_port_attr attr;

    return (!ibv_query_port(ctx, port, &attr)
            && attr.flags & IBV_QPF_GRH_REQUIRED);
}

static int
hw_numa_node(struct ibv_context *ctx)
{
    char *file = xasprintf("%s/device/numa_node", ctx->device->ibdev_path);
    FILE *stream = fopen(file, "r");
    int node;

    free(file);
    if (!stream) {
        return -1;
    }
    if (fscanf(stream, "%d", &node) != 1 || node < 0) {
        node = -1;
    }
    fclose(stream);
    return node;
}

const struct ipoib_verbs ipoib_verbs_hw = {
    .name = "hw",
    .open_device = hw_open_device,
    .close_device = hw_close_device,
    .list_devices = hw_list_devices,
    .query_device = hw_query_device,
    .query_port = hw_query_port,
    .query_gid = hw_query_gid,
    .query_pkey = hw_query_pkey,
    .get_async_event = hw_get_async_event,
    .ack_async_event = hw_ack_async_event,
    .alloc_pd = hw_alloc_pd,
    .dealloc_pd = hw_dealloc_pd,
    .reg_mr = hw_reg_mr,
    .dereg_mr = hw_dereg_mr,
    .create_comp_channel = hw_create_comp_channel,
    .destroy_comp_channel = hw_destroy_comp_channel,
    .get_cq_event = hw_get_cq_event,
    .ack_cq_events = hw_ack_cq_events,
    .create_cq = hw_create_cq,
    .destroy_cq = hw_destroy_cq,
    .create_srq = hw_create_srq,
    .modify_srq = hw_modify_srq,
    .query_srq = hw_query_srq,
    .destroy_srq = hw_destroy_srq,
    .create_qp = hw_create_qp,
    .max_tso = hw_max_tso,
    .create_tso_qp = hw_create_tso_qp,
    .modify_qp = hw_modify_qp,
    .query_qp = hw_query_qp,
    .destroy_qp = hw_destroy_qp,
    .create_ah = hw_create_ah,
    .destroy_ah = hw_destroy_ah,
    .attach_mcast = hw_attach_mcast,
    .detach_mcast = hw_detach_mcast,
    .port_needs_grh = hw_port_needs_grh,
    .numa_node = hw_numa_node,
};
