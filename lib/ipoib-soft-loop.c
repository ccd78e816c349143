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
#include "util.h"

/* The software HCA's link inside the process: a subnet whose ports are the
 * devices "soft:loop:NAME" of one NAME.  ("soft:loop" is alone in a subnet of
 * its own.)  The sender's thread brings its packets to the receiving queue
 * pairs itself, without a system call.
 *
 * The subnet has a small subnet administrator of its own, at LID 1, which
 * answers what an IPoIB node asks: ClassPortInfo, PathRecord, MCMemberRecord,
 * and InformInfo, for which it sends no reports.  Its answers are there
 * before the call that posted the question returns. */

#define LOOP_SM_LID     1
#define LOOP_FIRST_LID  2
#define LOOP_MAX_PORTS  256
#define LOOP_MAX_GROUPS 1024
#define LOOP_QKEY       0x0b1b          /* Of the broadcast groups. */
#define LOOP_RATE       16              /* 100 Gb/s. */
#define LOOP_LIFE       18
#define LOOP_SM_GUID    UINT64_C(0x0200000000000001)

struct loop_group {
    struct ib_mcmember_record rec; /* Without 'port_gid', 'scope_join'. */
    bool broadcast;             /* Stays without members. */
    atomic_uint8_t joined[LOOP_MAX_PORTS]; /* JoinState of each port. */
};

struct soft_subnet {
    struct ovs_list node;
    char *name;                 /* Empty for one that is not shared. */
    int n_ports;                /* Under 'subnets_mutex'. */
    struct ovs_mutex mutex;     /* To change the below. */
    OVSRCU_TYPE(struct soft_hca *) ports[LOOP_MAX_PORTS]; /* By LID. */
    OVSRCU_TYPE(struct loop_group *) groups[LOOP_MAX_GROUPS]; /* By MLID. */
};

static struct ovs_mutex subnets_mutex = OVS_MUTEX_INITIALIZER;
static struct ovs_list subnets OVS_GUARDED_BY(subnets_mutex)
    = OVS_LIST_INITIALIZER(&subnets);

static struct soft_hca *
subnet_port(const struct soft_subnet *s, int idx)
{
    return ovsrcu_get(struct soft_hca *, &s->ports[idx]);
}

static struct loop_group *
subnet_group(const struct soft_subnet *s, int idx)
{
    return ovsrcu_get(struct loop_group *, &s->groups[idx]);
}

static struct soft_subnet *
subnet_ref(const char *name)
    OVS_REQUIRES(subnets_mutex)
{
    struct soft_subnet *s;

    LIST_FOR_EACH (s, node, &subnets) {
        if (name[0] && !strcmp(s->name, name)) {
            s->n_ports++;
            return s;
        }
    }
    s = xzalloc(sizeof *s);
    s->name = xstrdup(name);
    s->n_ports = 1;
    ovs_mutex_init(&s->mutex);
    ovs_list_push_back(&subnets, &s->node);
    return s;
}

static void
subnet_free(struct soft_subnet *s)
{
    for (int i = 0; i < LOOP_MAX_GROUPS; i++) {
        free(subnet_group(s, i));
    }
    ovs_mutex_destroy(&s->mutex);
    free(s->name);
    free(s);
}

static void
subnet_unref(struct soft_subnet *s)
    OVS_REQUIRES(subnets_mutex)
{
    if (!--s->n_ports) {
        ovs_list_remove(&s->node);
        ovsrcu_postpone(subnet_free, s);
    }
}

/* True if another port of 's' has the GUID of 'hca'. */
static bool
guid_in_use(const struct soft_subnet *s, const struct soft_hca *hca)
{
    for (int i = 0; i < LOOP_MAX_PORTS; i++) {
        const struct soft_hca *other = subnet_port(s, i);

        if (other && other->port_guid == hca->port_guid) {
            return true;
        }
    }
    return false;
}

/* Finds a place, that is, a LID, for 'hca' in 's'. */
static int
subnet_add(struct soft_subnet *s, struct soft_hca *hca, char **errp)
    OVS_REQUIRES(s->mutex)
{
    if (hca->name.guid && guid_in_use(s, hca)) {
        if (errp) {
            *errp = xasprintf("soft device '%s': port GUID 0x%016"PRIx64
                              " is in use", hca->full_name, hca->port_guid);
        }
        return -EADDRINUSE;
    }
    while (guid_in_use(s, hca)) {
        hca->port_guid++;
    }
    for (int i = 0; i < LOOP_MAX_PORTS; i++) {
        if (!subnet_port(s, i)) {
            ovsrcu_set(&s->ports[i], hca);
            return i;
        }
    }
    if (errp) {
        *errp = xasprintf("soft device '%s': all %d ports of the subnet are "
                          "in use", hca->full_name, LOOP_MAX_PORTS);
    }
    return -ENOSPC;
}

static int
loop_start(struct soft_hca *hca, char **errp)
{
    struct soft_port port = *soft_port_get(hca);
    struct soft_subnet *s;
    int idx;

    ovs_mutex_lock(&subnets_mutex);
    s = subnet_ref(hca->name.where);
    ovs_mutex_lock(&s->mutex);
    idx = subnet_add(s, hca, errp);
    ovs_mutex_unlock(&s->mutex);
    if (idx < 0) {
        subnet_unref(s);
    }
    ovs_mutex_unlock(&subnets_mutex);
    if (idx < 0) {
        return -idx;
    }

    hca->subnet = s;
    port.state = IBV_PORT_ACTIVE;
    port.lid = LOOP_FIRST_LID + idx;
    port.sm_lid = LOOP_SM_LID;
    port.subnet_timeout = LOOP_LIFE;
    port.active_speed = 32;     /* EDR. */
    port.gid = ib_gid_make(IB_GID_PREFIX_DEFAULT, hca->port_guid);
    if (hca->name.n_pkeys) {
        memcpy(port.pkeys, hca->name.pkeys, sizeof port.pkeys);
    }
    if (hca->name.model.source || hca->name.model.sink) {
        hca->model = soft_model_create(&hca->name.model);
    }
    soft_port_set(hca, &port, true);
    return 0;
}

/* Ends the membership bits 'bits' of port 'idx' in the group with index 'g',
 * and the group when nobody holds it any longer.  Returns what is left. */
static uint8_t
group_leave(struct soft_subnet *s, int g, int idx, uint8_t bits)
    OVS_REQUIRES(s->mutex)
{
    struct loop_group *group = subnet_group(s, g);
    uint8_t left, joined;

    atomic_read_relaxed(&group->joined[idx], &left);
    left &= ~bits;
    atomic_store_relaxed(&group->joined[idx], left);
    if (group->broadcast) {
        return left;
    }
    for (int i = 0; i < LOOP_MAX_PORTS; i++) {
        atomic_read_relaxed(&group->joined[i], &joined);
        if (joined & (IB_JOIN_FULL | IB_JOIN_SEND_ONLY_FULL)) {
            return left;
        }
    }
    ovsrcu_set(&s->groups[g], NULL);
    ovsrcu_postpone(free, group);
    return left;
}

static void
loop_stop(struct soft_hca *hca)
{
    struct soft_subnet *s = hca->subnet;
    int idx = soft_port_get(hca)->lid - LOOP_FIRST_LID;

    ovs_mutex_lock(&subnets_mutex);
    ovs_mutex_lock(&s->mutex);
    ovsrcu_set(&s->ports[idx], NULL);
    for (int g = 0; g < LOOP_MAX_GROUPS; g++) {
        if (subnet_group(s, g)) {
            group_leave(s, g, idx, 0xf);
        }
    }
    ovs_mutex_unlock(&s->mutex);
    subnet_unref(s);
    ovs_mutex_unlock(&subnets_mutex);
}

/* The subnet administrator. */

/* A question, and its answer as it grows. */
struct loop_sa {
    struct soft_subnet *s;
    struct soft_hca *hca;       /* Who asks, */
    const struct soft_port *port;
    int idx;                    /* and its place. */
    struct ib_sa_mad *mad;
    uint32_t mask;              /* Low half of the component mask. */
};

static uint16_t
sa_class_port_info(struct loop_sa *sa)
{
    struct ib_class_port_info *cpi
        = ALIGNED_CAST(struct ib_class_port_info *, sa->mad->data);

    memset(sa->mad->data, 0, sizeof sa->mad->data);
    cpi->base_version = IB_MAD_BASE_VERSION;
    cpi->class_version = IB_SA_CLASS_VERSION;
    cpi->cap_mask2_resp = htonl(IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER << 5
                                | LOOP_LIFE);
    return 0;
}

static uint16_t
sa_path_record(struct loop_sa *sa)
{
    struct ib_path_record *pr
        = ALIGNED_CAST(struct ib_path_record *, sa->mad->data);
    const struct soft_port *dst = NULL;
    uint16_t lid = 0;

    if (!(sa->mask & (IB_PR_DGID | IB_PR_DLID))) {
        return IB_SA_INSUFFICIENT_COMPS;
    }
    for (int i = 0; i < LOOP_MAX_PORTS && !dst; i++) {
        const struct soft_hca *hca = subnet_port(sa->s, i);
        const struct soft_port *p = hca ? soft_port_get(hca) : NULL;

        if (p && (!(sa->mask & IB_PR_DGID)
                  || ib_gid_equals(&p->gid, &pr->dgid))
            && (!(sa->mask & IB_PR_DLID) || htons(p->lid) == pr->dlid)) {
            dst = p;
            lid = p->lid;
            pr->dgid = p->gid;
        }
    }
    if (!dst && sa->mask & IB_PR_DGID && sa->hca->model
        && soft_model_find_gid(sa->hca->model, &pr->dgid, &lid)) {
        dst = sa->port;
    }
    if (!dst) {
        return IB_SA_NO_RECORDS;
    }
    pr->sgid = sa->port->gid;
    pr->dlid = htons(lid);
    pr->slid = htons(sa->port->lid);
    pr->raw_flow_hop = 0;
    pr->tclass = 0;
    pr->numb_path = 0x80 | 1;
    if (!(sa->mask & IB_PR_PKEY)) {
        pr->pkey = htons(IB_PKEY_DEFAULT);
    }
    pr->qos_sl = 0;
    pr->mtu = IB_SELECTOR_EXACTLY << 6 | dst->active_mtu;
    pr->rate = IB_SELECTOR_EXACTLY << 6 | LOOP_RATE;
    pr->life = IB_SELECTOR_EXACTLY << 6 | LOOP_LIFE;
    pr->preference = 0;
    return 0;
}

static int
group_find(const struct soft_subnet *s, const struct ib_gid *mgid)
{
    for (int g = 0; g < LOOP_MAX_GROUPS; g++) {
        const struct loop_group *group = subnet_group(s, g);

        if (group && ib_gid_equals(&group->rec.mgid, mgid)) {
            return g;
        }
    }
    return -1;
}

/* True if 'mgid' is the IPv4 broadcast group of a P_Key; stores that. */
static bool
is_broadcast_group(const struct ib_gid *mgid, uint16_t *pkey)
{
    static const uint8_t head[4] = { 0xff, 0x12, 0x40, 0x1b };
    static const uint8_t tail[10] = { [6] = 0xff, 0xff, 0xff, 0xff };

    *pkey = mgid->raw[4] << 8 | mgid->raw[5];
    return (*pkey & IB_PKEY_FULL && !memcmp(mgid->raw, head, sizeof head)
            && !memcmp(mgid->raw + 6, tail, sizeof tail));
}

/* Makes the group that 'rec' asks for.  Returns its index, or -1. */
static int
group_create(struct loop_sa *sa, const struct ib_mcmember_record *rec)
    OVS_REQUIRES(sa->s->mutex)
{
    struct loop_group *group;
    uint16_t pkey;
    int g;

    for (g = 0; g < LOOP_MAX_GROUPS && subnet_group(sa->s, g); g++) {
        continue;
    }
    if (g == LOOP_MAX_GROUPS) {
        return -1;
    }
    group = xzalloc(sizeof *group);
    group->rec = *rec;
    group->rec.mlid = htons(IB_LID_MULTICAST + g);
    group->rec.mtu = IB_SELECTOR_EXACTLY << 6 | sa->port->active_mtu;
    group->rec.rate = IB_SELECTOR_EXACTLY << 6 | LOOP_RATE;
    group->rec.life = IB_SELECTOR_EXACTLY << 6 | LOOP_LIFE;
    if (is_broadcast_group(&rec->mgid, &pkey)) {
        group->broadcast = true;
        group->rec.qkey = htonl(LOOP_QKEY);
        group->rec.pkey = htons(pkey);
        group->rec.tclass = 0;
        group->rec.sl_flow_hop = 0;
    }
    for (int i = 0; i < LOOP_MAX_PORTS; i++) {
        atomic_init(&group->joined[i], 0);
    }
    ovsrcu_set(&sa->s->groups[g], group);
    return g;
}

static bool
port_has_pkey(const struct soft_port *port, uint16_t pkey)
{
    for (int i = 0; i < IB_SOFT_MAX_PKEYS; i++) {
        if (port->pkeys[i] && ib_pkey_match(port->pkeys[i], pkey)) {
            return true;
        }
    }
    return false;
}

/* Writes the record of the group with index 'g' and the membership 'joined'
 * into the answer. */
static void
put_group(struct loop_sa *sa, int g, uint8_t joined)
{
    struct ib_mcmember_record *rec
        = ALIGNED_CAST(struct ib_mcmember_record *, sa->mad->data);

    memset(sa->mad->data, 0, sizeof sa->mad->data);
    *rec = subnet_group(sa->s, g)->rec;
    rec->port_gid = sa->port->gid;
    rec->scope_join = (rec->mgid.raw[1] & 0xf) << 4 | joined;
}

static uint16_t
sa_join(struct loop_sa *sa)
    OVS_REQUIRES(sa->s->mutex)
{
    const uint32_t create = IB_MCM_QKEY | IB_MCM_PKEY | IB_MCM_SL | IB_MCM_FLOW
                            | IB_MCM_TCLASS;
    const struct ib_mcmember_record *rec
        = ALIGNED_CAST(const struct ib_mcmember_record *, sa->mad->data);
    uint8_t state = rec->scope_join & 0xf, joined;
    const struct loop_group *group;
    int g = group_find(sa->s, &rec->mgid);
    uint16_t pkey;

    if (g < 0) {
        if (!is_broadcast_group(&rec->mgid, &pkey)) {
            if ((sa->mask & create) != create) {
                return IB_SA_INSUFFICIENT_COMPS;
            }
            if (!(state & (IB_JOIN_FULL | IB_JOIN_SEND_ONLY_FULL))) {
                return IB_SA_REQ_INVALID;
            }
            pkey = ntohs(rec->pkey);
        }
        if (!port_has_pkey(sa->port, pkey)) {
            return IB_SA_REQ_INVALID;
        }
        g = group_create(sa, rec);
        if (g < 0) {
            return IB_SA_NO_RESOURCES;
        }
    }
    group = subnet_group(sa->s, g);
    if (!port_has_pkey(sa->port, ntohs(group->rec.pkey))
        || (sa->mask & IB_MCM_QKEY && rec->qkey != group->rec.qkey)
        || (sa->mask & IB_MCM_PKEY
            && (rec->pkey ^ group->rec.pkey) & htons(IB_PKEY_MASK))) {
        return IB_SA_REQ_INVALID;
    }
    atomic_read_relaxed(&group->joined[sa->idx], &joined);
    joined |= state;
    atomic_store_relaxed(CONST_CAST(atomic_uint8_t *,
                                    &group->joined[sa->idx]), joined);
    put_group(sa, g, joined);
    return 0;
}

static uint16_t
sa_leave(struct loop_sa *sa)
    OVS_REQUIRES(sa->s->mutex)
{
    struct ib_mcmember_record *rec
        = ALIGNED_CAST(struct ib_mcmember_record *, sa->mad->data);
    uint8_t bits = rec->scope_join & 0xf, joined;
    int g = group_find(sa->s, &rec->mgid);

    if (g < 0) {
        return IB_SA_REQ_INVALID;
    }
    atomic_read_relaxed(&subnet_group(sa->s, g)->joined[sa->idx], &joined);
    if (!(joined & bits)) {
        return IB_SA_REQ_INVALID;
    }
    put_group(sa, g, joined & ~bits);
    group_leave(sa->s, g, sa->idx, bits);
    return 0;
}

static uint16_t
sa_mcmember_record(struct loop_sa *sa)
{
    struct ib_mcmember_record *rec
        = ALIGNED_CAST(struct ib_mcmember_record *, sa->mad->data);
    const uint32_t need = IB_MCM_MGID | IB_MCM_PORT_GID | IB_MCM_JOIN;
    uint8_t method = sa->mad->method;
    uint16_t status;

    if (!(sa->mask & IB_MCM_MGID)
        || (method != IB_METHOD_GET && (sa->mask & need) != need)) {
        return IB_SA_INSUFFICIENT_COMPS;
    }
    if (!ib_gid_is_multicast(&rec->mgid)
        || (method != IB_METHOD_GET
            && (!ib_gid_equals(&rec->port_gid, &sa->port->gid)
                || !(rec->scope_join & 0xf)))) {
        return (ib_gid_equals(&rec->port_gid, &sa->port->gid)
                ? IB_SA_REQ_INVALID : IB_SA_REQ_INVALID_GID);
    }

    ovs_mutex_lock(&sa->s->mutex);
    if (method == IB_METHOD_SET) {
        status = sa_join(sa);
    } else if (method == IB_METHOD_DELETE) {
        status = sa_leave(sa);
    } else {
        int g = group_find(sa->s, &rec->mgid);

        status = g < 0 ? IB_SA_NO_RECORDS : 0;
        if (!status) {
            put_group(sa, g, 0);
        }
    }
    ovs_mutex_unlock(&sa->s->mutex);
    return status;
}

/* Turns the question 'sa->mad' into its answer. */
static uint16_t
sa_answer(struct loop_sa *sa)
{
    const struct ib_sa_mad *mad = sa->mad;
    uint8_t method = mad->method;

    switch (ntohs(mad->attr_id)) {
    case IB_ATTR_CLASS_PORT_INFO:
        return (method == IB_METHOD_GET ? sa_class_port_info(sa)
                : IB_MAD_STATUS_BAD_METHOD);
    case IB_ATTR_PATH_RECORD:
        return (method == IB_METHOD_GET ? sa_path_record(sa)
                : IB_MAD_STATUS_BAD_METHOD);
    case IB_ATTR_MCMEMBER_RECORD:
        return (method == IB_METHOD_GET || method == IB_METHOD_SET
                || method == IB_METHOD_DELETE ? sa_mcmember_record(sa)
                : IB_MAD_STATUS_BAD_METHOD);
    case IB_ATTR_INFORM_INFO:
        return method == IB_METHOD_SET ? 0 : IB_MAD_STATUS_BAD_METHOD;
    default:
        return IB_MAD_STATUS_BAD_ATTR;
    }
}

static void
sa_reply(struct soft_hca *hca, const struct soft_packet *q,
         struct ib_sa_mad *mad)
{
    struct soft_packet p = {
        .ud = {
            .slid = LOOP_SM_LID, .dlid = q->ud.slid,
            .opcode = IB_OPCODE_UD_SEND, .has_grh = q->ud.has_grh,
            .pkey = q->ud.pkey | IB_PKEY_FULL,
            .dqpn = q->ud.sqpn, .sqpn = IB_QPN_GSI, .qkey = IB_QKEY_GSI,
            .payload_len = sizeof *mad,
        },
        .n_iov = 1, .iov[0] = { .iov_base = mad, .iov_len = sizeof *mad },
    };

    if (p.ud.has_grh) {
        p.ud.grh = q->ud.grh;
        p.ud.grh.dgid = q->ud.grh.sgid;
        p.ud.grh.sgid = ib_gid_make(ib_gid_prefix(&q->ud.grh.sgid),
                                    LOOP_SM_GUID);
        p.ud.grh.paylen = htons(soft_grh_paylen(&p.ud));
    }
    soft_deliver(hca, &p);
}

static void
sa_receive(struct soft_hca *hca, const struct soft_port *port,
           const struct soft_packet *p)
{
    struct ib_sa_mad mad;
    size_t len = 0;
    struct loop_sa sa = {
        .s = hca->subnet, .hca = hca, .port = port,
        .idx = port->lid - LOOP_FIRST_LID, .mad = &mad,
    };

    if (p->ud.dqpn != IB_QPN_GSI || p->ud.qkey != IB_QKEY_GSI
        || p->ud.payload_len != sizeof mad) {
        soft_count(hca, SOFT_C_SA_IGNORED, 1);
        return;
    }
    for (size_t i = 0; i < p->n_iov; i++) {
        memcpy((uint8_t *) &mad + len, p->iov[i].iov_base, p->iov[i].iov_len);
        len += p->iov[i].iov_len;
    }
    if (mad.mgmt_class != IB_MGMT_CLASS_SA
        || mad.class_version != IB_SA_CLASS_VERSION
        || mad.method & IB_METHOD_RESP || mad.method == IB_METHOD_REPORT) {
        soft_count(hca, SOFT_C_SA_IGNORED, 1);
        return;
    }
    sa.mask = ntohl(mad.comp_mask[1]);
    mad.status = htons(sa_answer(&sa));
    mad.method = (mad.method == IB_METHOD_SET ? IB_METHOD_GET_RESP
                  : mad.method | IB_METHOD_RESP);
    soft_count(hca, SOFT_C_SA_ANSWERED, 1);
    sa_reply(hca, p, &mad);
}

/* Forwarding. */

static void
forward_multicast(struct soft_hca *hca, const struct soft_port *port,
                  const struct soft_packet *p)
{
    struct soft_subnet *s = hca->subnet;
    int g = p->ud.dlid - IB_LID_MULTICAST;
    struct loop_group *group = g < LOOP_MAX_GROUPS ? subnet_group(s, g) : NULL;

    if (!group) {
        soft_count(hca, SOFT_C_TX_NO_PORT, 1);
        return;
    }
    for (int i = 0; i < LOOP_MAX_PORTS; i++) {
        struct soft_hca *to = subnet_port(s, i);
        uint8_t joined;

        atomic_read_relaxed(&group->joined[i], &joined);
        if (to && i != port->lid - LOOP_FIRST_LID
            && joined & (IB_JOIN_FULL | IB_JOIN_NON)) {
            soft_deliver(to, p);
        }
    }
}

static void
loop_send(struct soft_hca *hca, const struct soft_port *port,
          struct soft_packet *const packets[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct soft_packet *p = packets[i];
        uint16_t dlid = p->ud.dlid;
        struct soft_hca *to;

        if (dlid >= IB_LID_MULTICAST) {
            forward_multicast(hca, port, p);
            if (hca->model) {
                soft_model_sink(hca, port, p);
            }
        } else if (dlid == LOOP_SM_LID) {
            sa_receive(hca, port, p);
        } else {
            to = (dlid >= LOOP_FIRST_LID
                  && dlid - LOOP_FIRST_LID < LOOP_MAX_PORTS
                  ? subnet_port(hca->subnet, dlid - LOOP_FIRST_LID) : NULL);
            if (to) {
                soft_deliver(to, p);
            } else {
                soft_count(hca, SOFT_C_TX_NO_PORT, 1);
            }
        }
    }
}

const struct soft_link_class soft_link_loop = {
    .start = loop_start,
    .stop = loop_stop,
    .send = loop_send,
};
