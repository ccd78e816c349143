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
#include "ipoib-soft.h"
#include "ipoib-soft-private.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "dirs.h"
#include "jhash.h"
#include "openvswitch/dynamic-string.h"
#include "openvswitch/vlog.h"
#include "packets.h"
#include "random.h"
#include "sset.h"
#include "timeval.h"
#include "util.h"

VLOG_DEFINE_THIS_MODULE(ipoib_soft);

/* Devices of the software HCA, their names, and the port. */

static const char *const counter_names[] = {
#define SOFT_COUNTER(ENUM, NAME) NAME,
    SOFT_COUNTERS
#undef SOFT_COUNTER
};

/* Names. */

static char *
parse_guid(const char *s, uint64_t *guid)
{
    unsigned long long int value;
    char *end;

    errno = 0;
    value = strtoull(s, &end, 16);
    if (errno || end == s || *end || *s == '-' || !value) {
        return xasprintf("'%s' is not a port GUID (0x and up to 16 hex "
                         "digits, not 0)", s);
    }
    *guid = value;
    return NULL;
}

/* P_Keys, separated by commas. */
static char *
parse_pkeys(char *s, struct soft_name *n)
{
    char *save = NULL;

    for (char *key = strtok_r(s, ",", &save); key;
         key = strtok_r(NULL, ",", &save)) {
        unsigned int value;

        if (!str_to_uint(key, 0, &value) || value > UINT16_MAX
            || !(value & IB_PKEY_MASK)) {
            return xasprintf("'%s' is not a P_Key", key);
        }
        if (n->n_pkeys >= IB_SOFT_MAX_PKEYS) {
            return xasprintf("more than %d P_Keys", IB_SOFT_MAX_PKEYS);
        }
        n->pkeys[n->n_pkeys++] = value;
    }
    return NULL;
}

static char *
parse_number(const char *key, const char *s, unsigned int min,
             unsigned int max, unsigned int *valuep)
{
    unsigned int value;

    if (!str_to_uint(s, 10, &value) || value < min || value > max) {
        return xasprintf("%s=%s: not a number from %u to %u", key, s, min,
                         max);
    }
    *valuep = value;
    return NULL;
}

static char *
parse_ip(const char *key, const char *s, ovs_be32 *ip)
{
    return (ip_parse(s, ip) ? NULL
            : xasprintf("%s=%s: not an IPv4 address", key, s));
}

/* Parses an option of a loop.  'value' is "" if there is none. */
static char *
parse_loop_option(const char *key, char *value, struct soft_name *n)
{
    struct soft_model_params *m = &n->model;

    if (!strcmp(key, "pkeys")) {
        return parse_pkeys(value, n);
    } else if (!strcmp(key, "source")) {
        m->source = true;
    } else if (!strcmp(key, "sink")) {
        m->sink = true;
    } else if (!strcmp(key, "grh")) {
        m->grh = true;
    } else if (!strcmp(key, "neighbours")) {
        return parse_number(key, value, 1, 1 << 20, &m->neighbours);
    } else if (!strcmp(key, "size")) {
        return parse_number(key, value, 28, 4092, &m->size);
    } else if (!strcmp(key, "src")) {
        return parse_ip(key, value, &m->src);
    } else if (!strcmp(key, "dst")) {
        return parse_ip(key, value, &m->dst);
    } else {
        return xasprintf("unknown option '%s' (known: guid, csum, tso, "
                         "pkeys, source, sink, neighbours, size, src, dst, "
                         "grh)", key);
    }
    return NULL;
}

static char *
parse_csum(const char *s, struct soft_name *n)
{
    static const char *const values[] = {
        [SOFT_CSUM_GOOD] = "good",
        [SOFT_CSUM_LIES_TX] = "lies-tx",
        [SOFT_CSUM_LIES_RX] = "lies-rx",
    };

    for (size_t i = SOFT_CSUM_GOOD; i < ARRAY_SIZE(values); i++) {
        if (!strcmp(s, values[i])) {
            n->csum = i;
            return NULL;
        }
    }
    return xasprintf("csum=%s: not one of good, lies-tx, lies-rx", s);
}

static char *
parse_tso(const char *s, struct soft_name *n)
{
    n->tso = (!strcmp(s, "good") ? SOFT_TSO_GOOD
              : !strcmp(s, "lies") ? SOFT_TSO_LIES : SOFT_TSO_NONE);
    return n->tso ? NULL : xasprintf("tso=%s: not one of good, lies", s);
}

/* Parses the options 's', separated by "&". */
static char *
parse_options(char *s, struct soft_name *n)
{
    char *save = NULL;

    for (char *key = strtok_r(s, "&", &save); key;
         key = strtok_r(NULL, "&", &save)) {
        char *value = strchr(key, '=');
        char *error;

        if (value) {
            *value++ = '\0';
        } else {
            value = key + strlen(key);
        }
        if (!strcmp(key, "guid")) {
            error = parse_guid(value, &n->guid);
        } else if (!strcmp(key, "csum")) {
            error = parse_csum(value, n);
        } else if (!strcmp(key, "tso")) {
            error = parse_tso(value, n);
        } else if (n->type == SOFT_LOOP) {
            error = parse_loop_option(key, value, n);
        } else {
            error = xasprintf("unknown option '%s' (known: guid, csum, tso)",
                              key);
        }
        if (error) {
            return error;
        }
    }
    return NULL;
}

static char *
check_where(struct soft_name *n)
{
    if (n->type == SOFT_UNIX && !n->where[0]) {
        return xstrdup("the path of the fabric's socket is missing");
    } else if (n->type == SOFT_UDP) {
        char *colon = strrchr(n->where, ':');
        ovs_be32 ip;
        int port;
        bool ok = colon && str_to_int(colon + 1, 10, &port)
                  && port > 0 && port < 65536;

        if (ok) {
            *colon = '\0';
            ok = ip_parse(n->where, &ip);
            *colon = ':';
        }
        if (!ok) {
            return xasprintf("'%s' is not ADDR:PORT with an IPv4 address",
                             n->where);
        }
    }
    return NULL;
}

/* Parses 'name' (soft:...) into '*n', which the caller destroys in any case.
 * Returns NULL, or a message that the caller frees. */
char *
soft_name_parse(const char *name, struct soft_name *n)
{
    static const char *const kinds[] = { "unix", "udp", "loop" };
    char *copy, *kind, *rest, *options, *error = NULL;
    size_t type;

    memset(n, 0, sizeof *n);
    n->model.neighbours = 1;
    n->model.size = 64;
    n->model.src = htonl(0xc6130001);   /* 198.19.0.1, for benchmarks. */
    n->model.dst = htonl(0xc6120001);   /* 198.18.0.1. */
    copy = xstrdup(name + strlen("soft:"));
    options = strrchr(copy, '?');
    if (options) {
        *options++ = '\0';
    }
    rest = strchr(copy, ':');
    if (rest) {
        *rest++ = '\0';
    }
    kind = copy;
    for (type = 0; type < ARRAY_SIZE(kinds); type++) {
        if (!strcmp(kind, kinds[type])) {
            break;
        }
    }
    n->where = xstrdup(rest ? rest : "");
    if (type == ARRAY_SIZE(kinds)) {
        error = xasprintf("unknown kind '%s' (known: unix, udp, loop)", kind);
    } else {
        n->type = type;
        error = check_where(n);
        if (!error && options) {
            error = parse_options(options, n);
        }
    }
    free(copy);

    if (error) {
        char *msg = xasprintf("soft device '%s': %s", name, error);

        free(error);
        return msg;
    }
    return NULL;
}

void
soft_name_destroy(struct soft_name *n)
{
    free(n->where);
}

bool
ipoib_soft_name_parse(const char *name, char **errp)
{
    struct soft_name n;
    char *error;

    if (errp) {
        *errp = NULL;
    }
    if (strncmp(name, "soft:", 5)) {
        return false;
    }
    error = soft_name_parse(name, &n);
    soft_name_destroy(&n);
    if (errp) {
        *errp = error;
    } else {
        free(error);
    }
    return true;
}

/* The port's GUID: of the name's options or the environment, or else from
 * what stays the same over a restart, as a locally administered EUI-64. */
static uint64_t
choose_guid(const struct soft_name *n, const char *name)
{
    const char *env = getenv("OVS_IPOIB_SOFT_GUID");
    char host[256] = "";
    uint64_t guid = n->guid;
    char *s;

    if (!guid && env && env[0]) {
        char *error = parse_guid(env, &guid);

        if (error) {
            VLOG_WARN("OVS_IPOIB_SOFT_GUID: %s", error);
            free(error);
            guid = 0;
        }
    }
    if (guid) {
        return guid;
    }
    if (gethostname(host, sizeof host - 1)) {
        host[0] = '\0';
    }
    s = xasprintf("%s\n%s\n%s", host, ovs_rundir(), name);
    guid = (((uint64_t) jhash_bytes(s, strlen(s), 0) << 32
             | jhash_bytes(s, strlen(s), 1))
            & UINT64_C(0x00ffffffffffffff)) | UINT64_C(0x0200000000000000);
    free(s);
    return guid;
}

/* Devices. */

static void
hca_init_device(struct soft_hca *hca, const char *name)
{
    struct ibv_context_ops *ops = &hca->ctx.ops;

    hca->device.node_type = IBV_NODE_CA;
    hca->device.transport_type = IBV_TRANSPORT_IB;
    ovs_strlcpy(hca->device.name, name, sizeof hca->device.name);
    hca->ctx.device = &hca->device;
    hca->ctx.cmd_fd = -1;
    hca->ctx.num_comp_vectors = 1;
    ops->post_send = soft_post_send;
    ops->post_recv = soft_post_recv;
    ops->post_srq_recv = soft_post_srq_recv;
    ops->poll_cq = soft_poll_cq;
    ops->req_notify_cq = soft_req_notify_cq;
}

static void
hca_init_port(struct soft_hca *hca)
{
    struct soft_port *port = xzalloc(sizeof *port);

    port->state = IBV_PORT_DOWN;
    port->active_mtu = IBV_MTU_4096;
    port->active_width = 2;
    port->active_speed = 1;
    port->gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, hca->port_guid);
    port->pkeys[0] = IB_PKEY_DEFAULT;
    ovsrcu_init(&hca->port, port);
}

static struct soft_hca *
hca_create(const char *name, struct soft_name *n)
{
    struct soft_hca *hca = xzalloc(sizeof *hca);

    hca->full_name = xstrdup(name);
    hca->name = *n;
    hca->port_guid = choose_guid(n, name);
    ovs_mutex_init(&hca->mutex);
    hca_init_device(hca, name);
    hca_init_port(hca);
    soft_events_init(hca);
    cmap_init(&hca->qps);
    cmap_init(&hca->groups);
    ovsrcu_init(&hca->mrs, NULL);
    ovs_list_init(&hca->pd_list);
    ovs_list_init(&hca->mr_list);
    ovs_list_init(&hca->channel_list);
    ovs_list_init(&hca->cq_list);
    ovs_list_init(&hca->srq_list);
    ovs_list_init(&hca->qp_list);
    ovs_list_init(&hca->ah_list);
    for (size_t i = 0; i < SOFT_N_COUNTERS; i++) {
        atomic_init(&hca->counters[i], 0);
    }

    /* QPNs go on from those of the process before, since neighbours cache
     * them: as if 4096 were used up each second. */
    hca->next_qpn = (time_wall() << 12) + random_range(1 << 11);
    hca->mr_generation = random_uint32();
    hca->link = n->type == SOFT_LOOP ? &soft_link_loop : &soft_link_socket;
    return hca;
}

static void
hca_free(struct soft_hca *hca)
{
    free(ovsrcu_get_protected(struct soft_port *, &hca->port));
    cmap_destroy(&hca->qps);
    cmap_destroy(&hca->groups);
    soft_mr_free_table(hca);
    soft_events_destroy(hca);
    soft_name_destroy(&hca->name);
    free(hca->full_name);
    free(hca->model);
    ovs_mutex_destroy(&hca->mutex);
    free(hca);
}

/* The device that failed last, and until when it cannot be opened. */
static struct ovs_mutex failed_mutex = OVS_MUTEX_INITIALIZER;
static char *failed_name OVS_GUARDED_BY(failed_mutex);
static long long int failed_until OVS_GUARDED_BY(failed_mutex);

int
ipoib_soft_fail(struct ibv_context *ctx, int msec)
{
    struct soft_hca *hca = soft_hca_cast(ctx);

    if (!hca->link->fail) {
        return EOPNOTSUPP;
    }
    ovs_mutex_lock(&failed_mutex);
    free(failed_name);
    failed_name = xstrdup(hca->full_name);
    failed_until = time_msec() + msec;
    ovs_mutex_unlock(&failed_mutex);
    hca->link->fail(hca);
    soft_event_raise(hca, IBV_EVENT_DEVICE_FATAL, NULL);
    return 0;
}

static bool
device_is_away(const char *name)
{
    bool away;

    ovs_mutex_lock(&failed_mutex);
    away = (failed_name && !strcmp(name, failed_name)
            && time_msec() < failed_until);
    ovs_mutex_unlock(&failed_mutex);
    return away;
}

static struct ibv_context *
soft_open_device(const char *name, char **errp)
{
    struct soft_hca *hca;
    struct soft_name n;
    char *error;
    int retval;

    if (errp) {
        *errp = NULL;
    }
    if (device_is_away(name)) {
        errno = ENODEV;
        return NULL;
    }
    error = soft_name_parse(name, &n);
    if (error) {
        soft_name_destroy(&n);
        if (errp) {
            *errp = error;
        } else {
            free(error);
        }
        errno = EINVAL;
        return NULL;
    }

    hca = hca_create(name, &n);
    retval = hca->link->start(hca, errp);
    if (retval) {
        hca_free(hca);
        errno = retval;
        return NULL;
    }
    soft_fault_add_device(hca);
    return &hca->ctx;
}

/* Destroys what the user left, users of objects before the objects. */
static void
hca_destroy_objects(struct soft_hca *hca)
{
    struct ovs_list *l;

#define DESTROY_ALL(LIST, TYPE, MEMBER, FUNCTION)                       \
    while (!ovs_list_is_empty(&hca->LIST)) {                            \
        l = ovs_list_front(&hca->LIST);                                 \
        FUNCTION(&CONTAINER_OF(l, struct TYPE, node)->MEMBER);          \
    }
    DESTROY_ALL(qp_list, soft_qp, qp, soft_destroy_qp);
    DESTROY_ALL(srq_list, soft_srq, srq, soft_destroy_srq);
    DESTROY_ALL(cq_list, soft_cq, cq, soft_destroy_cq);
    DESTROY_ALL(channel_list, soft_channel, channel,
                soft_destroy_comp_channel);
    DESTROY_ALL(ah_list, soft_ah, ah, soft_destroy_ah);
    DESTROY_ALL(mr_list, soft_mr, mr, soft_dereg_mr);
    DESTROY_ALL(pd_list, soft_pd, pd, soft_dealloc_pd);
#undef DESTROY_ALL
}

static int
soft_close_device(struct ibv_context *ctx)
{
    struct soft_hca *hca = soft_hca_cast(ctx);

    soft_fault_remove_device(hca);
    hca->link->stop(hca);
    hca->closing = true;
    hca_destroy_objects(hca);
    ovsrcu_postpone(hca_free, hca);
    return 0;
}

/* There is no list of fabrics to attach to. */
static void
soft_list_devices(struct sset *names OVS_UNUSED)
{
}

static int
soft_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
    struct soft_hca *hca = soft_hca_cast(ctx);

    memset(attr, 0, sizeof *attr);
    ovs_strlcpy(attr->fw_ver, "soft", sizeof attr->fw_ver);
    attr->node_guid = attr->sys_image_guid = htonll(hca->port_guid);
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = ~UINT64_C(0xfff);
    attr->max_qp = SOFT_MAX_QP;
    attr->max_qp_wr = SOFT_MAX_WR;
    attr->device_cap_flags = (IBV_DEVICE_SRQ_RESIZE
                              | IBV_DEVICE_PORT_ACTIVE_EVENT
                              | IBV_DEVICE_SYS_IMAGE_GUID
                              | (hca->name.csum ? IBV_DEVICE_UD_IP_CSUM : 0));
    attr->max_sge = SOFT_MAX_SGE;
    attr->max_cq = 65536;
    attr->max_cqe = SOFT_MAX_CQE;
    attr->max_mr = SOFT_MAX_MR;
    attr->max_pd = 65536;
    attr->max_mcast_grp = SOFT_MAX_GROUPS;
    attr->max_mcast_qp_attach = 65536;
    attr->max_total_mcast_qp_attach = INT32_MAX;
    attr->max_ah = INT32_MAX;
    attr->max_srq = SOFT_MAX_SRQ;
    attr->max_srq_wr = SOFT_MAX_WR;
    attr->max_srq_sge = SOFT_MAX_SGE;
    attr->max_pkeys = IB_SOFT_MAX_PKEYS;
    attr->phys_port_cnt = 1;
    return 0;
}

static int
soft_query_port(struct ibv_context *ctx, uint8_t port_num,
                struct ibv_port_attr *attr)
{
    const struct soft_port *port = soft_port_get(soft_hca_cast(ctx));

    if (port_num != 1) {
        return EINVAL;
    }
    memset(attr, 0, sizeof *attr);
    attr->state = port->state;
    attr->max_mtu = IBV_MTU_4096;
    attr->active_mtu = port->active_mtu;
    attr->gid_tbl_len = 1;
    attr->max_msg_sz = 4096;
    attr->pkey_tbl_len = IB_SOFT_MAX_PKEYS;
    attr->lid = port->lid;
    attr->sm_lid = port->sm_lid;
    attr->lmc = port->lmc;
    attr->sm_sl = port->sm_sl;
    attr->subnet_timeout = port->subnet_timeout;
    attr->max_vl_num = 1;
    attr->active_width = port->active_width;
    attr->active_speed = port->active_speed;
    attr->phys_state = port->state == IBV_PORT_DOWN ? 2 : 5;
    attr->link_layer = IBV_LINK_LAYER_INFINIBAND;
    attr->flags = port->grh_required ? IBV_QPF_GRH_REQUIRED : 0;
    return 0;
}

static int
soft_query_gid(struct ibv_context *ctx, uint8_t port_num, int index,
               union ibv_gid *gid)
{
    const struct soft_port *port = soft_port_get(soft_hca_cast(ctx));

    if (port_num != 1 || index) {
        return EINVAL;
    }
    memcpy(gid, &port->gid, sizeof *gid);
    return 0;
}

static int
soft_query_pkey(struct ibv_context *ctx, uint8_t port_num, int index,
                ovs_be16 *pkey)
{
    const struct soft_port *port = soft_port_get(soft_hca_cast(ctx));

    if (port_num != 1 || index < 0 || index >= IB_SOFT_MAX_PKEYS) {
        return EINVAL;
    }
    *pkey = htons(port->pkeys[index]);
    return 0;
}

static bool
soft_port_needs_grh(struct ibv_context *ctx, uint8_t port_num OVS_UNUSED)
{
    return soft_port_get(soft_hca_cast(ctx))->grh_required;
}

static int
soft_numa_node(struct ibv_context *ctx OVS_UNUSED)
{
    return -1;
}

void
soft_port_set(struct soft_hca *hca, const struct soft_port *port,
              bool reregister)
{
    struct soft_port *old, *new = xmemdup(port, sizeof *port);
    bool was_active, is_active;

    ovs_mutex_lock(&hca->mutex);
    old = ovsrcu_get_protected(struct soft_port *, &hca->port);
    ovsrcu_set(&hca->port, new);
    ovs_mutex_unlock(&hca->mutex);

    was_active = old->state == IBV_PORT_ACTIVE;
    is_active = new->state == IBV_PORT_ACTIVE;
    if (was_active && !is_active) {
        soft_event_raise(hca, IBV_EVENT_PORT_ERR, NULL);
    }
    if (old->lid != port->lid || old->lmc != port->lmc) {
        soft_event_raise(hca, IBV_EVENT_LID_CHANGE, NULL);
    }
    if (memcmp(old->pkeys, port->pkeys, sizeof old->pkeys)) {
        soft_event_raise(hca, IBV_EVENT_PKEY_CHANGE, NULL);
    }
    /* No event tells of GRH_REQUIRED, but this one has users look again. */
    if (!ib_gid_equals(&old->gid, &port->gid)
        || old->grh_required != port->grh_required) {
        soft_event_raise(hca, IBV_EVENT_GID_CHANGE, NULL);
    }
    if (old->sm_lid != port->sm_lid || old->sm_sl != port->sm_sl) {
        soft_event_raise(hca, IBV_EVENT_SM_CHANGE, NULL);
    }
    if (!was_active && is_active) {
        soft_event_raise(hca, IBV_EVENT_PORT_ACTIVE, NULL);
    }
    if (reregister) {
        soft_event_raise(hca, IBV_EVENT_CLIENT_REREGISTER, NULL);
    }
    ovsrcu_postpone(free, old);
}

/* Counters. */

/* Packets, which each QP counts for itself. */
struct packet_counts {
    uint64_t tx, rx, sink;
};

static struct packet_counts
count_packets(struct soft_hca *hca)
{
    struct packet_counts c;
    struct soft_qp *qp;

    ovs_mutex_lock(&hca->mutex);
    c.tx = hca->old_tx;
    c.rx = hca->old_rx;
    c.sink = hca->old_sink;
    LIST_FOR_EACH (qp, node, &hca->qp_list) {
        ovs_mutex_lock(&qp->sq_mutex);
        c.tx += qp->n_tx;
        c.sink += qp->n_sink;
        ovs_mutex_unlock(&qp->sq_mutex);
        ovs_mutex_lock(&qp->mutex);
        c.rx += qp->n_rx;
        ovs_mutex_unlock(&qp->mutex);
    }
    ovs_mutex_unlock(&hca->mutex);
    return c;
}

void
ipoib_soft_counters(struct ibv_context *ctx, struct ds *ds)
{
    struct soft_hca *hca = soft_hca_cast(ctx);
    const struct soft_port *port = soft_port_get(hca);
    struct packet_counts c = count_packets(hca);

    ds_put_format(ds, "port_guid: 0x%016"PRIx64"\n", hca->port_guid);
    ds_put_format(ds, "port_state: %s\n",
                  port->state == IBV_PORT_ACTIVE ? "active"
                  : port->state == IBV_PORT_ARMED ? "armed"
                  : port->state == IBV_PORT_INIT ? "init" : "down");
    ds_put_format(ds, "port_lid: %u\n", port->lid);
    ds_put_format(ds, "queue_pairs: %d\n", hca->n_qps);
    ds_put_format(ds, "tx_packets: %"PRIu64"\n", c.tx);
    ds_put_format(ds, "rx_packets: %"PRIu64"\n", c.rx);
    if (hca->model) {
        ds_put_format(ds, "sink_packets: %"PRIu64"\n", c.sink);
    }
    for (size_t i = 0; i < SOFT_N_COUNTERS; i++) {
        uint64_t n;

        atomic_read_relaxed(&hca->counters[i], &n);
        if (n) {
            ds_put_format(ds, "%s: %"PRIu64"\n", counter_names[i], n);
        }
    }
}

uint64_t
ipoib_soft_counter(struct ibv_context *ctx, const char *name)
{
    struct soft_hca *hca = soft_hca_cast(ctx);
    struct packet_counts c = count_packets(hca);
    uint64_t n = (!strcmp(name, "tx_packets") ? c.tx
                  : !strcmp(name, "rx_packets") ? c.rx
                  : !strcmp(name, "sink_packets") ? c.sink : 0);

    for (size_t i = 0; i < SOFT_N_COUNTERS; i++) {
        if (!strcmp(counter_names[i], name)) {
            atomic_read_relaxed(&hca->counters[i], &n);
        }
    }
    return n;
}

const struct ipoib_verbs ipoib_verbs_soft = {
    .name = "soft",
    .open_device = soft_open_device,
    .close_device = soft_close_device,
    .list_devices = soft_list_devices,
    .query_device = soft_query_device,
    .query_port = soft_query_port,
    .query_gid = soft_query_gid,
    .query_pkey = soft_query_pkey,
    .get_async_event = soft_get_async_event,
    .ack_async_event = soft_ack_async_event,
    .alloc_pd = soft_alloc_pd,
    .dealloc_pd = soft_dealloc_pd,
    .reg_mr = soft_reg_mr,
    .dereg_mr = soft_dereg_mr,
    .create_comp_channel = soft_create_comp_channel,
    .destroy_comp_channel = soft_destroy_comp_channel,
    .get_cq_event = soft_get_cq_event,
    .ack_cq_events = soft_ack_cq_events,
    .create_cq = soft_create_cq,
    .destroy_cq = soft_destroy_cq,
    .create_srq = soft_create_srq,
    .modify_srq = soft_modify_srq,
    .query_srq = soft_query_srq,
    .destroy_srq = soft_destroy_srq,
    .create_qp = soft_create_qp,
    .max_tso = soft_max_tso,
    .create_tso_qp = soft_create_tso_qp,
    .modify_qp = soft_modify_qp,
    .query_qp = soft_query_qp,
    .destroy_qp = soft_destroy_qp,
    .create_ah = soft_create_ah,
    .destroy_ah = soft_destroy_ah,
    .attach_mcast = soft_attach_mcast,
    .detach_mcast = soft_detach_mcast,
    .port_needs_grh = soft_port_needs_grh,
    .numa_node = soft_numa_node,
};
