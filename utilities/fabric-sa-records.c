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
#include "fabric-sa-records.h"

#include <stdlib.h>
#include <string.h>

#include "fabric-ports.h"
#include "fabric-groups.h"
#include "openvswitch/ofpbuf.h"
#include "util.h"

/* Records of one table; more are refused. */
#define MAX_RECORDS 65536

/* Appends a record of 'size' bytes, padded to a multiple of 8, all 0, and
 * returns it.  Good until the next one is added. */
void *
fabric_sa_add_record(struct ofpbuf *records, size_t size)
{
    size = ROUND_UP(size, 8);
    if (ofpbuf_tailroom(records) < size) {
        /* An ofpbuf by itself grows by a few bytes each time. */
        ofpbuf_prealloc_tailroom(records, MAX(size, records->size));
    }
    return ofpbuf_put_zeros(records, size);
}

/* True if 'have' is what 'wanted', a selector (2 bits) and a value (6 bits),
 * asks for. */
bool
fabric_sa_select(uint8_t wanted, uint8_t have)
{
    uint8_t value = wanted & 0x3f;

    switch (wanted >> 6) {
    case 0:
        return have > value;
    case 1:
        return have < value;
    case 2:
        return have == value;
    default:                    /* The largest available. */
        return true;
    }
}

/* Rates, by their enumeration, in tenths of Gb/s: the enumeration has no
 * order. */
static const uint16_t rate_values[] = {
    [2] = 25, [3] = 100, [4] = 300, [5] = 50, [6] = 200, [7] = 400, [8] = 600,
    [9] = 800, [10] = 1200, [11] = 140, [12] = 560, [13] = 1120, [14] = 1680,
    [15] = 250, [16] = 1000, [17] = 2000, [18] = 3000, [19] = 280, [20] = 500,
    [21] = 4000, [22] = 6000, [23] = 8000, [24] = 12000,
};

/* Returns 'rate', an enumeration, in tenths of Gb/s, or 0. */
unsigned int
fabric_sa_rate_value(uint8_t rate)
{
    return rate < ARRAY_SIZE(rate_values) ? rate_values[rate] : 0;
}

/* As fabric_sa_select(), for rates. */
static bool
select_rate(uint8_t wanted, uint8_t have)
{
    unsigned int value = fabric_sa_rate_value(wanted & 0x3f);
    unsigned int have_value = fabric_sa_rate_value(have);

    switch (wanted >> 6) {
    case 0:
        return have_value > value;
    case 1:
        return have_value < value;
    case 2:
        return have_value == value;
    default:
        return true;
    }
}

static void
put_be16(uint8_t *p, uint16_t x)
{
    ovs_be16 be = htons(x);

    memcpy(p, &be, sizeof be);
}

static void
put_be32(uint8_t *p, uint32_t x)
{
    ovs_be32 be = htonl(x);

    memcpy(p, &be, sizeof be);
}

static void
put_be64(uint8_t *p, uint64_t x)
{
    ovs_be64 be = htonll(x);

    memcpy(p, &be, sizeof be);
}

static uint16_t
get_be16(const uint8_t *p)
{
    ovs_be16 be;

    memcpy(&be, p, sizeof be);
    return ntohs(be);
}

/* ClassPortInfo. */

#define CPI_CAP_UD_MULTICAST (1 << 9)

uint16_t
fabric_sa_class_port_info(struct fabric *fabric,
                          const struct fabric_sa_request *request OVS_UNUSED,
                          struct ofpbuf *records)
{
    struct ib_class_port_info *cpi = fabric_sa_add_record(records,
                                                          sizeof *cpi);

    cpi->base_version = IB_MAD_BASE_VERSION;
    cpi->class_version = IB_SA_CLASS_VERSION;
    cpi->cap_mask = htons(CPI_CAP_UD_MULTICAST);
    cpi->cap_mask2_resp = htonl(
        (uint32_t) IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER << 5
        | fabric->cfg.timeout);
    return 0;
}

/* NodeRecord (15.2.5.2): LID (2), reserved (2), NodeInfo (40, 14.2.5.3) and
 * node description (64). */

#define NR_LID           (1u << 0)
#define NR_BASE_VERSION  (1u << 2)
#define NR_CLASS_VERSION (1u << 3)
#define NR_NODE_TYPE     (1u << 4)
#define NR_NUM_PORTS     (1u << 5)
#define NR_SYSTEM_GUID   (1u << 6)
#define NR_NODE_GUID     (1u << 7)
#define NR_PORT_GUID     (1u << 8)
#define NR_PORT_NUM      (1u << 12)
#define NR_DESCRIPTION   (1u << 14)

static void
put_node_record(const struct fabric_port *port, uint8_t *record)
{
    uint8_t *info = record + 4;

    put_be16(record, port->lid);
    info[0] = IB_MAD_BASE_VERSION;
    info[1] = 1;                    /* Class version. */
    info[2] = 1;                    /* A channel adapter, */
    info[3] = 1;                    /* of one port. */
    put_be64(info + 4, port->node_guid);
    put_be64(info + 12, port->node_guid);
    put_be64(info + 20, port->guid);
    put_be16(info + 28, IB_SOFT_MAX_PKEYS);
    info[36] = 1;                   /* Local port number. */
    memcpy(record + 44, port->description, sizeof port->description);
}

static bool
node_matches(const uint8_t *have, const uint8_t *want, uint64_t mask)
{
    static const struct {
        uint32_t component;
        uint8_t offset, size;
    } fields[] = {
        { NR_LID, 0, 2 },
        { NR_BASE_VERSION, 4, 1 },
        { NR_CLASS_VERSION, 5, 1 },
        { NR_NODE_TYPE, 6, 1 },
        { NR_NUM_PORTS, 7, 1 },
        { NR_SYSTEM_GUID, 8, 8 },
        { NR_NODE_GUID, 16, 8 },
        { NR_PORT_GUID, 24, 8 },
        { NR_PORT_NUM, 40, 1 },
        { NR_DESCRIPTION, 44, 64 },
    };

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (mask & fields[i].component
            && memcmp(have + fields[i].offset, want + fields[i].offset,
                      fields[i].size)) {
            return false;
        }
    }
    return true;
}

/* Returns the ports that a request can concern: all of them, or, if 'by_lid',
 * those of 'lid'.  The caller must free the array. */
static struct fabric_port **
candidates(const struct fabric *fabric, bool by_lid, uint16_t lid, size_t *n)
{
    struct fabric_port *port, **ports;

    if (!by_lid) {
        return fabric_ports_sorted(fabric, n);
    }
    *n = 0;
    for (port = fabric_port_by_lid(fabric, lid); port; port = port->lid_next) {
        *n += fabric_port_is_present(port);
    }
    ports = xmalloc((*n + 1) * sizeof *ports);
    *n = 0;
    for (port = fabric_port_by_lid(fabric, lid); port; port = port->lid_next) {
        if (fabric_port_is_present(port)) {
            ports[(*n)++] = port;
        }
    }
    return ports;
}

uint16_t
fabric_sa_nodes(struct fabric *fabric, const struct fabric_sa_request *request,
                struct ofpbuf *records)
{
    struct fabric_port **ports;
    size_t n;

    ports = candidates(fabric, request->mask & NR_LID,
                       get_be16(request->mad->data), &n);
    for (size_t i = 0; i < n; i++) {
        uint8_t record[FABRIC_NODE_RECORD_LEN] = { 0 };

        put_node_record(ports[i], record);
        if (node_matches(record, request->mad->data, request->mask)) {
            memcpy(fabric_sa_add_record(records, sizeof record), record,
                   sizeof record);
        }
    }
    free(ports);
    return 0;
}

/* PortInfoRecord (15.2.5.3): LID (2), port number (1), options (1) and
 * PortInfo (64, 14.2.5.6). */

#define PIR_LID      (1u << 0)
#define PIR_PORT_NUM (1u << 1)
#define PIR_BASE_LID (1u << 5)
#define PIR_SM_LID   (1u << 6)

#define PORT_CAP_IS_SM           (1u << 1)
#define PORT_CAP_EXTENDED_SPEEDS (1u << 14)
#define PORT_CAP_REREGISTER      (1u << 25)

#define PHYSICAL_STATE_DISABLED 3
#define PHYSICAL_STATE_LINK_UP  5

static void
put_port_info_record(const struct fabric *fabric,
                     const struct fabric_port *port, uint8_t *record)
{
    const struct fabric_config *cfg = &fabric->cfg;
    uint8_t speed = cfg->speed < 16 ? cfg->speed : 4; /* Up to QDR. */
    uint8_t extended = cfg->speed >> 4;               /* FDR and more. */
    uint8_t *info = record + 4;

    put_be16(record, port->lid);
    record[2] = 1;                  /* Port number. */
    put_be64(info + 8, cfg->prefix);
    put_be16(info + 16, port->lid);
    put_be16(info + 18, fabric->sm->lid);
    put_be32(info + 20, (PORT_CAP_EXTENDED_SPEEDS | PORT_CAP_REREGISTER
                         | (port == fabric->sm ? PORT_CAP_IS_SM : 0)));
    info[28] = 1;                   /* Local port number. */
    info[29] = info[30] = info[31] = cfg->width;
    info[32] = speed << 4 | port->state;
    info[33] = (port->state == FABRIC_PORT_DOWN ? PHYSICAL_STATE_DISABLED
                : PHYSICAL_STATE_LINK_UP) << 4 | 2;
    info[34] = port->lmc;
    info[35] = speed << 4 | speed;
    info[36] = port->mtu << 4 | cfg->sl;
    info[37] = 1 << 4;              /* One virtual lane. */
    info[41] = port->max_mtu;
    info[50] = 1;                   /* GUIDs. */
    info[51] = cfg->timeout;
    info[62] = extended << 4 | extended;
    info[63] = extended;
}

uint16_t
fabric_sa_port_infos(struct fabric *fabric,
                     const struct fabric_sa_request *request,
                     struct ofpbuf *records)
{
    const uint8_t *want = request->mad->data;
    uint64_t mask = request->mask;
    struct fabric_port **ports;
    size_t n;

    ports = candidates(fabric, mask & PIR_LID, get_be16(want), &n);
    for (size_t i = 0; i < n; i++) {
        if ((!(mask & PIR_PORT_NUM) || want[2] == 1)
            && (!(mask & PIR_BASE_LID)
                || get_be16(want + 20) == ports[i]->lid)
            && (!(mask & PIR_SM_LID)
                || get_be16(want + 22) == fabric->sm->lid)) {
            put_port_info_record(
                fabric, ports[i],
                fabric_sa_add_record(records, FABRIC_PORT_INFO_RECORD_LEN));
        }
    }
    free(ports);
    return 0;
}

/* PathRecord. */

#define PR_SERVICE_ID ((1u << 0) | (1u << 1))
#define PR_FLOW       (1u << 8)
#define PR_REVERSIBLE (1u << 11)
#define PR_QOS_CLASS  (1u << 14)
#define PR_MTU        ((1u << 16) | (1u << 17))
#define PR_RATE       ((1u << 18) | (1u << 19))
#define PR_LIFE       ((1u << 20) | (1u << 21))
#define PR_REVERSIBLE_BIT 0x80

/* Hop limit of a path that needs a GRH: receivers compare with 0 or 1. */
#define GRH_HOP_LIMIT 64

/* Returns a P_Key by which 'a' and 'b' may talk, that of 'request' if it has
 * one, or 0. */
static uint16_t
path_pkey(const struct fabric_sa_request *request,
          const struct ib_path_record *want,
          const struct fabric_port *a, const struct fabric_port *b)
{
    if (request->mask & IB_PR_PKEY) {
        uint16_t pkey = ntohs(want->pkey);

        return (ib_pkey_match(fabric_port_pkey(a, pkey),
                              fabric_port_pkey(b, pkey)) ? pkey : 0);
    }
    for (size_t i = 0; i < a->n_pkeys; i++) {
        uint16_t pkey = a->pkeys[i];

        if (ib_pkey_match(fabric_port_pkey(a, pkey),
                          fabric_port_pkey(b, pkey))) {
            return fabric_port_pkey(a, pkey);
        }
    }
    return 0;
}

/* True if 'path' has what 'want' asks for by 'mask'. */
static bool
path_suits(const struct ib_path_record *path,
           const struct ib_path_record *want, uint64_t mask)
{
    return ((!(mask & IB_PR_DLID) || path->dlid == want->dlid)
            && (!(mask & IB_PR_SLID) || path->slid == want->slid)
            && (!(mask & IB_PR_SL)
                || !(ntohs(path->qos_sl ^ want->qos_sl) & 0xf))
            && ((mask & PR_MTU) != PR_MTU
                || fabric_sa_select(want->mtu, path->mtu & 0x3f))
            && ((mask & PR_RATE) != PR_RATE
                || select_rate(want->rate, path->rate & 0x3f))
            && ((mask & PR_LIFE) != PR_LIFE
                || fabric_sa_select(want->life, path->life & 0x3f)));
}

/* Copies from 'want' to 'path' what the asker is free to choose. */
static void
path_copy_request(struct ib_path_record *path,
                  const struct ib_path_record *want, uint64_t mask)
{
    if (mask & PR_SERVICE_ID) {
        memcpy(path->service_id, want->service_id, sizeof path->service_id);
    }
    if (mask & PR_FLOW) {
        path->raw_flow_hop |= want->raw_flow_hop & htonl(0x0fffff00);
    }
    if (mask & IB_PR_TCLASS) {
        path->tclass = want->tclass;
    }
    if (mask & PR_QOS_CLASS) {
        path->qos_sl |= want->qos_sl & htons(0xfff0);
    }
}

/* The service level of paths: that of the fabric, or what 'want' asks for if
 * it is granted. */
static uint8_t
path_sl(const struct fabric *fabric, const struct fabric_sa_request *request,
        const struct ib_path_record *want)
{
    uint8_t sl = ntohs(want->qos_sl) & 0xf;

    return (request->mask & IB_PR_SL && fabric->cfg.more_sls & 1u << sl
            ? sl : fabric->cfg.sl);
}

/* Appends the paths from 'src' to 'dst' that suit 'request' to 'records', but
 * no more than 'max' of them.  With path bits there are several: the i-th
 * leads from the i-th LID of the one to the i-th of the other. */
static void
add_paths(struct fabric *fabric, const struct fabric_sa_request *request,
          const struct ib_path_record *want, const struct fabric_port *src,
          const struct fabric_port *dst, size_t max, struct ofpbuf *records)
{
    bool any_pair = (request->mask & (IB_PR_DLID | IB_PR_SLID)) != 0;
    int n_src = 1 << src->lmc;
    int n_dst = 1 << dst->lmc;
    uint16_t pkey = path_pkey(request, want, src, dst);
    bool need_grh = src->grh_required || dst->grh_required;
    size_t n = 0;

    if (!pkey) {
        return;
    }
    for (int i = 0; i < (any_pair ? n_src * n_dst : MAX(n_src, n_dst))
         && n < max; i++) {
        int src_bits = any_pair ? i / n_dst : i % n_src;
        struct ib_path_record path = {
            .dgid = fabric_port_gid(fabric, dst),
            .sgid = fabric_port_gid(fabric, src),
            .dlid = htons(dst->lid + i % n_dst),
            .slid = htons(src->lid + src_bits),
            .raw_flow_hop = htonl(need_grh ? GRH_HOP_LIMIT : 0),
            .numb_path = PR_REVERSIBLE_BIT,
            .pkey = htons(pkey),
            .qos_sl = htons(path_sl(fabric, request, want)),
            .mtu = IB_SELECTOR_EXACTLY << 6 | MIN(src->mtu, dst->mtu),
            .rate = IB_SELECTOR_EXACTLY << 6 | fabric->cfg.rate,
            .life = IB_SELECTOR_EXACTLY << 6 | fabric->cfg.timeout,
        };

        if (path_suits(&path, want, request->mask)) {
            path_copy_request(&path, want, request->mask);
            memcpy(fabric_sa_add_record(records, sizeof path), &path,
                   sizeof path);
            n++;
        }
    }
}

/* Appends the paths from 'src' to 'dst', each of which may be NULL for every
 * port, to 'records': no more than 'max' of them for each pair of ports. */
static uint16_t
add_all_paths(struct fabric *fabric, const struct fabric_sa_request *request,
              const struct ib_path_record *want, struct fabric_port *src,
              struct fabric_port *dst, size_t max, struct ofpbuf *records)
{
    struct fabric_port **ports = NULL;
    uint16_t status = 0;
    size_t n = 0;

    if (!src || !dst) {
        ports = fabric_ports_sorted(fabric, &n);
    }
    size_t n_src = src ? 1 : n;
    size_t n_dst = dst ? 1 : n;
    if (n_src * n_dst > MAX_RECORDS) {
        status = IB_SA_NO_RESOURCES;
    }
    for (size_t i = 0; i < n_src && !status; i++) {
        for (size_t j = 0; j < n_dst && !status; j++) {
            add_paths(fabric, request, want, src ? src : ports[i],
                      dst ? dst : ports[j], max, records);
            if (records->size / sizeof *want > MAX_RECORDS) {
                status = IB_SA_NO_RESOURCES;
            }
        }
    }
    free(ports);
    return status;
}

/* Appends the path from 'src' to the multicast group 'mgid'. */
static uint16_t
add_group_path(struct fabric *fabric, const struct fabric_sa_request *request,
               const struct ib_path_record *want,
               const struct fabric_port *src, struct ofpbuf *records)
{
    const struct fabric_group *group = fabric_group_by_mgid(fabric,
                                                            &want->dgid);

    if (!group || !fabric_port_pkey(src, group->pkey)
        || (request->mask & IB_PR_PKEY
            && (ntohs(want->pkey) ^ group->pkey) & IB_PKEY_MASK)) {
        return 0;
    }
    struct ib_path_record path = {
        .dgid = group->mgid,
        .sgid = fabric_port_gid(fabric, src),
        .dlid = htons(group->mlid),
        .slid = htons(src->lid),
        .raw_flow_hop = htonl(group->flow << 8 | group->hop),
        .tclass = group->tclass,
        .pkey = htons(group->pkey),
        .qos_sl = htons(group->sl),
        .mtu = IB_SELECTOR_EXACTLY << 6 | group->mtu,
        .rate = IB_SELECTOR_EXACTLY << 6 | group->rate,
        .life = IB_SELECTOR_EXACTLY << 6 | fabric->cfg.timeout,
    };
    if (path_suits(&path, want, request->mask)) {
        memcpy(fabric_sa_add_record(records, sizeof path), &path,
               sizeof path);
    }
    return 0;
}

/* Finds the port at one end of a path by GID or LID, as 'mask' has them.
 * Returns false if the mask names a port that does not exist; stores NULL in
 * '*portp' if it names none. */
static bool
path_end(const struct fabric *fabric, uint64_t mask, uint64_t gid_component,
         const struct ib_gid *gid, uint64_t lid_component, ovs_be16 lid,
         struct fabric_port **portp)
{
    *portp = NULL;
    if (mask & gid_component) {
        *portp = fabric_port_by_gid(fabric, gid);
        return *portp != NULL;
    }
    if (mask & lid_component) {
        *portp = fabric_port_by_lid(fabric, ntohs(lid));
        return *portp && fabric_port_is_present(*portp);
    }
    return true;
}

uint16_t
fabric_sa_paths(struct fabric *fabric, const struct fabric_sa_request *request,
                struct ofpbuf *records)
{
    bool is_table = request->mad->method == IB_METHOD_GET_TABLE;
    uint64_t mask = request->mask;
    struct fabric_port *src, *dst;
    struct ib_path_record want;
    size_t max = is_table ? MAX_RECORDS : 1;

    memcpy(&want, request->mad->data, sizeof want);
    if (!is_table && (!(mask & (IB_PR_SGID | IB_PR_SLID))
                      || !(mask & (IB_PR_DGID | IB_PR_DLID)))) {
        return IB_SA_INSUFFICIENT_COMPS;
    }
    if (is_table && mask & IB_PR_NUMB_PATH && want.numb_path & 0x7f) {
        max = want.numb_path & 0x7f;
    }
    if (!path_end(fabric, mask, IB_PR_SGID, &want.sgid,
                  IB_PR_SLID, want.slid, &src)) {
        return mask & IB_PR_SGID ? IB_SA_REQ_INVALID_GID : 0;
    }
    if (mask & IB_PR_DGID && ib_gid_is_multicast(&want.dgid)) {
        return (src ? add_group_path(fabric, request, &want, src, records)
                : IB_SA_INSUFFICIENT_COMPS);
    }
    if (mask & IB_PR_DGID
        && ib_gid_prefix(&want.dgid) != fabric->cfg.prefix) {
        return IB_SA_REQ_INVALID_GID;
    }
    if (!path_end(fabric, mask, IB_PR_DGID, &want.dgid,
                  IB_PR_DLID, want.dlid, &dst)) {
        return 0;
    }
    return add_all_paths(fabric, request, &want, src, dst, max, records);
}

/* MCMemberRecord. */

#define MCM_MTU_BOTH  (IB_MCM_MTU_SEL | IB_MCM_MTU)
#define MCM_RATE_BOTH (IB_MCM_RATE_SEL | IB_MCM_RATE)
#define MCM_LIFE_BOTH (IB_MCM_LIFE_SEL | IB_MCM_LIFE)

#define MCM_REQUIRED_JOIN (IB_MCM_MGID | IB_MCM_PORT_GID | IB_MCM_JOIN)
#define MCM_REQUIRED_CREATE (MCM_REQUIRED_JOIN | IB_MCM_QKEY | IB_MCM_TCLASS \
                             | IB_MCM_PKEY | IB_MCM_SL | IB_MCM_FLOW)

/* Fills in 'record' from 'group', as 'member' (may be NULL) sees it. */
static void
put_member_record(const struct fabric *fabric,
                  const struct fabric_group *group,
                  const struct fabric_port *member,
                  struct ib_mcmember_record *record)
{
    uint8_t state = 0;

    memset(record, 0, sizeof *record);
    record->mgid = group->mgid;
    if (member) {
        record->port_gid = fabric_port_gid(fabric, member);
        state = fabric_member_state(member, group);
    }
    record->qkey = htonl(group->qkey);
    record->mlid = htons(group->mlid);
    record->mtu = IB_SELECTOR_EXACTLY << 6 | group->mtu;
    record->tclass = group->tclass;
    record->pkey = htons(group->pkey);
    record->rate = IB_SELECTOR_EXACTLY << 6 | group->rate;
    record->life = IB_SELECTOR_EXACTLY << 6 | group->life;
    record->sl_flow_hop = htonl((uint32_t) group->sl << 28
                                | group->flow << 8 | group->hop);
    record->scope_join = group->scope << 4 | state;
}

/* True if 'group' has what 'want' asks for by 'mask', members apart. */
static bool
group_suits(const struct fabric_group *group,
            const struct ib_mcmember_record *want, uint64_t mask)
{
    uint32_t sl_flow_hop = ntohl(want->sl_flow_hop);

    return ((!(mask & IB_MCM_QKEY) || ntohl(want->qkey) == group->qkey)
            && (!(mask & IB_MCM_TCLASS) || want->tclass == group->tclass)
            && (!(mask & IB_MCM_PKEY)
                || !((ntohs(want->pkey) ^ group->pkey) & IB_PKEY_MASK))
            && (!(mask & IB_MCM_SL) || sl_flow_hop >> 28 == group->sl)
            && (!(mask & IB_MCM_FLOW)
                || (sl_flow_hop >> 8 & 0xfffff) == group->flow)
            && (!(mask & IB_MCM_HOP) || (sl_flow_hop & 0xff) == group->hop)
            && ((mask & MCM_MTU_BOTH) != MCM_MTU_BOTH
                || fabric_sa_select(want->mtu, group->mtu))
            && ((mask & MCM_RATE_BOTH) != MCM_RATE_BOTH
                || select_rate(want->rate, group->rate))
            && ((mask & MCM_LIFE_BOTH) != MCM_LIFE_BOTH
                || fabric_sa_select(want->life, group->life)));
}

/* Appends the record of 'group', as 'member' (may be NULL) sees it, if it is
 * what 'want' asks for by 'mask'. */
static void
add_group(const struct fabric *fabric, const struct fabric_group *group,
          const struct fabric_port *member,
          const struct ib_mcmember_record *want, uint64_t mask,
          struct ofpbuf *records)
{
    uint8_t state = member && group ? fabric_member_state(member, group) : 0;
    uint8_t join = want->scope_join & 0xf;

    if (!group
        || (mask & IB_MCM_MLID && ntohs(want->mlid) != group->mlid)
        || (mask & IB_MCM_SCOPE && want->scope_join >> 4 != group->scope)
        || (member && !state)
        || (member && mask & IB_MCM_JOIN && (state & join) != join)
        || !group_suits(group, want, mask)) {
        return;
    }
    put_member_record(fabric, group, member,
                      fabric_sa_add_record(records, sizeof *want));
}

uint16_t
fabric_sa_mc_get(struct fabric *fabric,
                 const struct fabric_sa_request *request,
                 struct ofpbuf *records)
{
    uint64_t mask = request->mask;
    struct fabric_port *member = NULL;
    struct ib_mcmember_record want;
    struct fabric_group **groups;
    size_t n;

    memcpy(&want, request->mad->data, sizeof want);
    if (mask & IB_MCM_PORT_GID) {
        member = fabric_port_by_gid(fabric, &want.port_gid);
        if (!member) {
            return 0;
        }
    }
    if (mask & IB_MCM_MGID) {
        add_group(fabric, fabric_group_by_mgid(fabric, &want.mgid), member,
                  &want, mask, records);
        return 0;
    }
    groups = fabric_groups_sorted(fabric, &n);
    for (size_t i = 0; i < n; i++) {
        add_group(fabric, groups[i], member, &want, mask, records);
    }
    free(groups);
    return 0;
}

/* Checks the ends of a join or leave: returns an SA status. */
static uint16_t
check_mc_request(struct fabric *fabric,
                 const struct fabric_sa_request *request,
                 const struct ib_mcmember_record *want)
{
    struct fabric_port *port;

    if ((request->mask & MCM_REQUIRED_JOIN) != MCM_REQUIRED_JOIN) {
        return IB_SA_INSUFFICIENT_COMPS;
    }
    port = fabric_port_by_gid(fabric, &want->port_gid);
    if (!port) {
        return IB_SA_REQ_INVALID_GID;
    }
    return port == request->peer.port ? 0 : IB_SA_REQ_DENIED;
}

/* Chooses the MTU that 'wanted' (selector and value) asks for, up to 'max'.
 * Returns 0 if none suits. */
static uint8_t
choose_mtu(uint8_t wanted, uint8_t max)
{
    for (uint8_t mtu = max; mtu >= 1; mtu--) {
        if (fabric_sa_select(wanted, mtu)) {
            return mtu;
        }
    }
    return 0;
}

/* The same for rates. */
static uint8_t
choose_rate(uint8_t wanted, uint8_t max)
{
    uint8_t best = 0;

    for (uint8_t rate = 0; rate < ARRAY_SIZE(rate_values); rate++) {
        if (rate_values[rate] > fabric_sa_rate_value(best)
            && rate_values[rate] <= fabric_sa_rate_value(max)
            && select_rate(wanted, rate)) {
            best = rate;
        }
    }
    return best;
}

/* Makes an MGID for a creator who leaves that to the SA (15.2.5.17). */
static struct ib_gid
assign_mgid(struct fabric *fabric, const struct ib_mcmember_record *want,
            uint64_t mask)
{
    uint8_t scope = mask & IB_MCM_SCOPE ? want->scope_join >> 4 : 2;
    struct ib_gid mgid;

    do {
        mgid = ib_gid_make((UINT64_C(0xff10a01b) + (scope << 16)) << 32
                           | fabric->cfg.prefix >> 32,
                           fabric->cfg.prefix << 32 | ++fabric->next_mgid);
    } while (fabric_group_by_mgid(fabric, &mgid));
    return mgid;
}

static bool
mgid_is_ipoib(const struct ib_gid *mgid)
{
    return ((mgid->raw[2] == 0x40 || mgid->raw[2] == 0x60)
            && mgid->raw[3] == 0x1b);
}

/* True if 'mgid' may be created: a multicast GID and, for IPoIB, one whose
 * broadcast group exists, as OpenSM wants it. */
static bool
mgid_may_be_created(const struct fabric *fabric, const struct ib_gid *mgid)
{
    struct ib_gid broadcast;

    if (!ib_gid_is_multicast(mgid) || mgid->raw[1] & 0xe0) {
        return false;
    }
    if (!mgid_is_ipoib(mgid)) {
        return true;
    }
    broadcast = fabric_broadcast_mgid(0);
    broadcast.raw[1] = mgid->raw[1];
    broadcast.raw[4] = mgid->raw[4];
    broadcast.raw[5] = mgid->raw[5];
    return fabric_group_by_mgid(fabric, &broadcast) != NULL;
}

/* Makes the group that 'want' describes.  Returns an SA status. */
static uint16_t
create_group(struct fabric *fabric, const struct fabric_sa_request *request,
             const struct ib_mcmember_record *want,
             struct fabric_group **groupp)
{
    const struct fabric_port *port = request->peer.port;
    uint32_t sl_flow_hop = ntohl(want->sl_flow_hop);
    uint64_t mask = request->mask;
    struct fabric_group template = {
        .mgid = want->mgid,
        .pkey = ntohs(want->pkey) | IB_PKEY_FULL,
        .qkey = ntohl(want->qkey),
        .mtu = port->mtu,
        .rate = fabric->cfg.group_rate,
        .life = ((mask & MCM_LIFE_BOTH) == MCM_LIFE_BOTH
                 ? want->life & 0x3f : 0),
        .sl = sl_flow_hop >> 28,
        .tclass = want->tclass,
        .hop = mask & IB_MCM_HOP ? sl_flow_hop & 0xff : 0,
        .scope = mask & IB_MCM_SCOPE ? want->scope_join >> 4 : 0,
        .flow = sl_flow_hop >> 8 & 0xfffff,
    };

    if (!(want->scope_join & (IB_JOIN_FULL | IB_JOIN_SEND_ONLY_FULL))) {
        return IB_SA_REQ_INVALID;
    }
    if ((mask & MCM_REQUIRED_CREATE) != MCM_REQUIRED_CREATE) {
        return IB_SA_INSUFFICIENT_COMPS;
    }
    if (!fabric_port_pkey(port, template.pkey)) {
        return IB_SA_REQ_INVALID;
    }
    if ((mask & MCM_MTU_BOTH) == MCM_MTU_BOTH) {
        template.mtu = choose_mtu(want->mtu, port->mtu);
    }
    if ((mask & MCM_RATE_BOTH) == MCM_RATE_BOTH) {
        template.rate = choose_rate(want->rate, fabric->cfg.rate);
    }
    if (!template.mtu || !template.rate) {
        return IB_SA_REQ_INVALID;
    }
    if (is_all_zeros(&want->mgid, sizeof want->mgid)) {
        template.mgid = assign_mgid(fabric, want, mask);
    } else if (!mgid_may_be_created(fabric, &want->mgid)) {
        return IB_SA_REQ_INVALID;
    }
    *groupp = fabric_group_create(fabric, &template);
    return *groupp ? 0 : IB_SA_NO_RESOURCES;
}

uint16_t
fabric_sa_mc_join(struct fabric *fabric,
                  const struct fabric_sa_request *request,
                  struct ofpbuf *records)
{
    struct fabric_port *port = request->peer.port;
    struct ib_mcmember_record want;
    struct fabric_group *group;
    uint16_t status;
    uint8_t join;

    memcpy(&want, request->mad->data, sizeof want);
    port->reregister = 0;
    status = check_mc_request(fabric, request, &want);
    if (status) {
        return status;
    }
    join = want.scope_join & 0xf;
    group = fabric_group_by_mgid(fabric, &want.mgid);
    if (!group) {
        status = create_group(fabric, request, &want, &group);
        if (status) {
            return status;
        }
    } else if (!join || !fabric_port_pkey(port, group->pkey)
               || group->mtu > port->mtu
               || (fabric_sa_rate_value(group->rate)
                   > fabric_sa_rate_value(fabric->cfg.rate))
               || !group_suits(group, &want, request->mask)) {
        return IB_SA_REQ_INVALID;
    }
    fabric_member_set_state(port, group,
                            fabric_member_state(port, group) | join);
    put_member_record(fabric, group, port,
                      fabric_sa_add_record(records, sizeof want));
    return 0;
}

uint16_t
fabric_sa_mc_leave(struct fabric *fabric,
                   const struct fabric_sa_request *request,
                   struct ofpbuf *records)
{
    struct fabric_port *port = request->peer.port;
    struct ib_mcmember_record want, *record;
    struct fabric_group *group;
    uint16_t status;
    uint8_t state;

    memcpy(&want, request->mad->data, sizeof want);
    status = check_mc_request(fabric, request, &want);
    if (status) {
        return status;
    }
    group = fabric_group_by_mgid(fabric, &want.mgid);
    state = group ? fabric_member_state(port, group) : 0;
    if (!(state & want.scope_join & 0xf)) {
        return IB_SA_REQ_INVALID;
    }
    state &= ~want.scope_join;
    fabric_member_set_state(port, group, state);
    fabric_group_remove_if_unused(fabric, group);

    /* OpenSM answers with the request, selectors set to "exactly", and the
     * states that are left. */
    record = fabric_sa_add_record(records, sizeof *record);
    *record = want;
    record->mtu = IB_SELECTOR_EXACTLY << 6 | (want.mtu & 0x3f);
    record->rate = IB_SELECTOR_EXACTLY << 6 | (want.rate & 0x3f);
    record->life = IB_SELECTOR_EXACTLY << 6 | (want.life & 0x3f);
    record->scope_join = (want.scope_join & 0xf0) | state;
    return 0;
}
