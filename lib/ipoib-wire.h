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

#ifndef IPOIB_WIRE_H
#define IPOIB_WIRE_H 1

/* InfiniBand wire formats: link and transport headers, management datagrams
 * (MADs) and the records of the subnet administrator (SA).
 *
 * Chapters are those of the InfiniBand Architecture Specification, volume 1.
 * Everything is in network byte order and laid out as on the wire; no struct
 * needs more than 4-byte alignment.  No state and no I/O: the functions are
 * pure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "openvswitch/types.h"
#include "openvswitch/util.h"
#include "packets.h"
#include "unaligned.h"

struct ds;

/* Local identifiers. */
#define IB_LID_MULTICAST  0xc000        /* First multicast LID. */
#define IB_LID_PERMISSIVE 0xffff

/* Queue pair numbers and Q_Keys. */
#define IB_QPN_SMI        0
#define IB_QPN_GSI        1
#define IB_QPN_MULTICAST  0xffffff
#define IB_QPN_MASK       0xffffff
#define IB_QKEY_GSI       0x80010000

/* P_Keys. */
#define IB_PKEY_DEFAULT   0xffff
#define IB_PKEY_FULL      0x8000        /* Bit of full membership. */
#define IB_PKEY_MASK      0x7fff

/* Returns true if packets with P_Keys 'a' and 'b' (host byte order) pass
 * between their owners: the same partition, and not both limited (10.9.3). */
static inline bool
ib_pkey_match(uint16_t a, uint16_t b)
{
    return !((a ^ b) & IB_PKEY_MASK) && ((a | b) & IB_PKEY_FULL)
           && (a & IB_PKEY_MASK);
}

#define IB_GID_LEN 16
struct ib_gid {
    uint8_t raw[IB_GID_LEN];
};
BUILD_ASSERT_DECL(sizeof(struct ib_gid) == IB_GID_LEN);

#define IB_GID_PREFIX_DEFAULT UINT64_C(0xfe80000000000000)

/* Makes a GID of 'prefix' and 'guid', both in host byte order. */
struct ib_gid ib_gid_make(uint64_t prefix, uint64_t guid);
uint64_t ib_gid_prefix(const struct ib_gid *); /* Host byte order. */
uint64_t ib_gid_guid(const struct ib_gid *);   /* Host byte order. */
bool ib_gid_equals(const struct ib_gid *, const struct ib_gid *);
static inline bool
ib_gid_is_multicast(const struct ib_gid *gid)
{
    return gid->raw[0] == 0xff;
}

/* Appends 'gid' to 'ds' as eight groups of four hex digits, none left out:
 * fe80:0000:0000:0000:0002:c903:0000:1001. */
void ib_gid_format(const struct ib_gid *gid, struct ds *ds);

/* MTU as the enumeration of the specification: 1: 256 ... 5: 4096. */
static inline int
ib_mtu_bytes(uint8_t mtu)
{
    return mtu >= 1 && mtu <= 5 ? 128 << mtu : 0;
}

/* Local route header (7.7). */
#define IB_LRH_LEN 8
#define IB_LNH_BTH 2            /* Next header: BTH. */
#define IB_LNH_GRH 3            /* Next header: GRH. */
struct ib_lrh {
    uint8_t vl_lver;            /* VL, link version. */
    uint8_t sl_lnh;             /* SL (4 bits), reserved (2), LNH (2). */
    ovs_be16 dlid;
    ovs_be16 pktlen;            /* 4-byte words, from LRH to ICRC. */
    ovs_be16 slid;
};
BUILD_ASSERT_DECL(sizeof(struct ib_lrh) == IB_LRH_LEN);

/* Global route header (8.3). */
#define IB_GRH_LEN 40
#define IB_GRH_NXTHDR 0x1b
struct ib_grh {
    ovs_16aligned_be32 vtf;     /* IP version 6 (4), TClass (8), flow (20). */
    ovs_be16 paylen;            /* From BTH to ICRC, in bytes. */
    uint8_t nxthdr;             /* IB_GRH_NXTHDR. */
    uint8_t hoplimit;
    struct ib_gid sgid;
    struct ib_gid dgid;
};
BUILD_ASSERT_DECL(sizeof(struct ib_grh) == IB_GRH_LEN);

/* Base transport header (9.2). */
#define IB_BTH_LEN 12
#define IB_OPCODE_UD_SEND     0x64
#define IB_OPCODE_UD_SEND_IMM 0x65
#define IB_BTH_SOLICITED 0x80
#define IB_BTH_MIGREQ    0x40
#define IB_BTH_PAD_SHIFT 4      /* PadCnt: 2 bits of 'flags'. */
struct ib_bth {
    uint8_t opcode;
    uint8_t flags;              /* SE, M, PadCnt (2), TVer (4). */
    ovs_be16 pkey;
    ovs_16aligned_be32 dqpn;    /* Low 24 bits. */
    ovs_16aligned_be32 psn;     /* AckReq, low 24 bits PSN. */
};
BUILD_ASSERT_DECL(sizeof(struct ib_bth) == IB_BTH_LEN);

/* Datagram extended transport header (9.3.2). */
#define IB_DETH_LEN 8
struct ib_deth {
    ovs_16aligned_be32 qkey;
    ovs_16aligned_be32 sqpn;    /* Low 24 bits. */
};
BUILD_ASSERT_DECL(sizeof(struct ib_deth) == IB_DETH_LEN);

#define IB_IMM_LEN 4
#define IB_CRC_LEN 6            /* ICRC (4) and VCRC (2). */
#define IB_ICRC_LEN 4

/* Largest UD packet from LRH to VCRC at MTU 4096. */
#define IB_UD_PACKET_MAX (IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN + IB_DETH_LEN \
                          + IB_IMM_LEN + 4096 + IB_CRC_LEN)

/* A UD packet, taken apart or to be composed.  Host byte order. */
struct ib_ud {
    uint16_t slid, dlid;
    uint8_t sl;
    uint8_t opcode;             /* IB_OPCODE_UD_SEND or ..._IMM. */
    bool solicited;
    bool has_grh;
    struct ib_grh grh;          /* If 'has_grh'; 'paylen' is computed. */
    uint16_t pkey;
    uint32_t dqpn, sqpn, psn, qkey;
    ovs_be32 imm;               /* If opcode is ..._IMM. */
    const void *payload;
    size_t payload_len;         /* Without padding. */
};

/* Takes the packet of 'len' bytes at 'data' (from the LRH to the VCRC) apart
 * into '*ud', whose payload points into 'data'.  Returns NULL if it is a
 * well-formed UD packet, otherwise a static string that says what is wrong. */
const char *ib_ud_parse(const void *data, size_t len, struct ib_ud *ud);

/* Writes the headers of 'ud' to 'hdr' (at least IB_UD_HEADER_MAX bytes),
 * ready to be followed by the payload, and the bytes that follow the payload
 * (padding, ICRC and VCRC of 0, at most IB_UD_TRAILER_MAX) to 'trailer'.
 * Returns the header's length and stores the trailer's in '*trailer_len'. */
#define IB_UD_HEADER_MAX (IB_LRH_LEN + IB_GRH_LEN + IB_BTH_LEN + IB_DETH_LEN \
                          + IB_IMM_LEN)
#define IB_UD_TRAILER_MAX (3 + IB_CRC_LEN)
size_t ib_ud_compose(const struct ib_ud *ud, void *hdr, void *trailer,
                     size_t *trailer_len);

/* Management datagrams (13.4.3, 15.2.1.1). */
#define IB_MAD_LEN 256
#define IB_MGMT_CLASS_SA 0x03
#define IB_SA_CLASS_VERSION 2
#define IB_MAD_BASE_VERSION 1

#define IB_METHOD_GET          0x01
#define IB_METHOD_SET          0x02
#define IB_METHOD_REPORT       0x06
#define IB_METHOD_GET_TABLE    0x12
#define IB_METHOD_DELETE       0x15
#define IB_METHOD_RESP         0x80     /* Bit of a response. */
#define IB_METHOD_GET_RESP     0x81
#define IB_METHOD_REPORT_RESP  0x86
#define IB_METHOD_GET_TABLE_RESP 0x92
#define IB_METHOD_DELETE_RESP  0x95

#define IB_ATTR_CLASS_PORT_INFO 0x0001
#define IB_ATTR_NOTICE          0x0002
#define IB_ATTR_INFORM_INFO     0x0003
#define IB_ATTR_NODE_RECORD     0x0011
#define IB_ATTR_PORT_INFO_RECORD 0x0012
#define IB_ATTR_PATH_RECORD     0x0035
#define IB_ATTR_MCMEMBER_RECORD 0x0038

/* MAD status, host byte order: low byte common (13.4.7), high byte SA's
 * (15.4.1). */
#define IB_MAD_STATUS_BUSY         0x0001
#define IB_MAD_STATUS_BAD_VERSION  0x0004
#define IB_MAD_STATUS_BAD_METHOD   0x0008
#define IB_MAD_STATUS_BAD_ATTR     0x000c
#define IB_SA_NO_RESOURCES         0x0100
#define IB_SA_REQ_INVALID          0x0200
#define IB_SA_NO_RECORDS           0x0300
#define IB_SA_TOO_MANY_RECORDS     0x0400
#define IB_SA_REQ_INVALID_GID      0x0500
#define IB_SA_INSUFFICIENT_COMPS   0x0600
#define IB_SA_REQ_DENIED           0x0700

/* Returns a static string for 'status' (host byte order), e.g. "no records",
 * for people; "ok" for 0. */
const char *ib_sa_status_to_string(uint16_t status);

#define IB_SA_DATA_LEN 200
struct ib_sa_mad {
    /* Common MAD header (24 bytes). */
    uint8_t base_version;
    uint8_t mgmt_class;
    uint8_t class_version;
    uint8_t method;
    ovs_be16 status;
    ovs_be16 class_specific;
    ovs_32aligned_be64 tid;
    ovs_be16 attr_id;
    ovs_be16 reserved;
    ovs_be32 attr_mod;
    /* RMPP header (12 bytes, 13.6.2). */
    uint8_t rmpp_version;
    uint8_t rmpp_type;
    uint8_t rmpp_flags;         /* RRespTime (5 bits), flags (3). */
    uint8_t rmpp_status;
    ovs_be32 rmpp_data1;        /* Segment number. */
    ovs_be32 rmpp_data2;        /* Payload length, or new window last. */
    /* SA header (20 bytes). */
    ovs_be32 sm_key[2];
    ovs_be16 attr_offset;       /* Record size in 8-byte words (GetTable). */
    ovs_be16 reserved2;
    ovs_be32 comp_mask[2];      /* High word first. */
    uint8_t data[IB_SA_DATA_LEN];
};
BUILD_ASSERT_DECL(sizeof(struct ib_sa_mad) == IB_MAD_LEN);

#define IB_RMPP_VERSION 1
#define IB_RMPP_TYPE_DATA  1
#define IB_RMPP_TYPE_ACK   2
#define IB_RMPP_TYPE_STOP  3
#define IB_RMPP_TYPE_ABORT 4
#define IB_RMPP_FLAG_ACTIVE 0x01
#define IB_RMPP_FLAG_FIRST  0x02
#define IB_RMPP_FLAG_LAST   0x04

/* ClassPortInfo (13.4.8.1). */
struct ib_class_port_info {
    uint8_t base_version;
    uint8_t class_version;
    ovs_be16 cap_mask;
    ovs_be32 cap_mask2_resp;    /* CapabilityMask2 (27), RespTimeValue (5). */
    struct ib_gid redirect_gid;
    ovs_be32 redirect_tsf;
    ovs_be16 redirect_lid;
    ovs_be16 redirect_pkey;
    ovs_be32 redirect_qp;
    ovs_be32 redirect_qkey;
    struct ib_gid trap_gid;
    ovs_be32 trap_tsf;
    ovs_be16 trap_lid;
    ovs_be16 trap_pkey;
    ovs_be32 trap_hlqp;
    ovs_be32 trap_qkey;
};
BUILD_ASSERT_DECL(sizeof(struct ib_class_port_info) == 72);
#define IB_CPI_MASK2_SEND_ONLY_FULL_MEMBER (1 << 12) /* Of CapabilityMask2. */

/* MCMemberRecord (15.2.5.17): 52 bytes. */
#define IB_MCM_MGID     (1u << 0)
#define IB_MCM_PORT_GID (1u << 1)
#define IB_MCM_QKEY     (1u << 2)
#define IB_MCM_MLID     (1u << 3)
#define IB_MCM_MTU_SEL  (1u << 4)
#define IB_MCM_MTU      (1u << 5)
#define IB_MCM_TCLASS   (1u << 6)
#define IB_MCM_PKEY     (1u << 7)
#define IB_MCM_RATE_SEL (1u << 8)
#define IB_MCM_RATE     (1u << 9)
#define IB_MCM_LIFE_SEL (1u << 10)
#define IB_MCM_LIFE     (1u << 11)
#define IB_MCM_SL       (1u << 12)
#define IB_MCM_FLOW     (1u << 13)
#define IB_MCM_HOP      (1u << 14)
#define IB_MCM_SCOPE    (1u << 15)
#define IB_MCM_JOIN     (1u << 16)
/* The masks that Linux sends. */
#define IB_MCM_MASK_JOIN_BROADCAST 0x10083u
#define IB_MCM_MASK_CREATE         0x173f7u
#define IB_MCM_MASK_LEAVE          0x10003u

#define IB_JOIN_FULL           0x1
#define IB_JOIN_NON            0x2
#define IB_JOIN_SEND_ONLY_NON  0x4
#define IB_JOIN_SEND_ONLY_FULL 0x8

#define IB_SELECTOR_EXACTLY 2   /* Top two bits of MTU and rate. */

struct ib_mcmember_record {
    struct ib_gid mgid;
    struct ib_gid port_gid;
    ovs_be32 qkey;
    ovs_be16 mlid;
    uint8_t mtu;                /* Selector (2 bits), MTU (6). */
    uint8_t tclass;
    ovs_be16 pkey;
    uint8_t rate;               /* Selector (2 bits), rate (6). */
    uint8_t life;               /* Selector (2 bits), packet lifetime (6). */
    ovs_be32 sl_flow_hop;       /* SL (4), flow label (20), hop limit (8). */
    uint8_t scope_join;         /* Scope (4), JoinState (4). */
    uint8_t proxy_join;         /* Top bit. */
    ovs_be16 reserved;
};
BUILD_ASSERT_DECL(sizeof(struct ib_mcmember_record) == 52);

/* PathRecord (15.2.5.16): 64 bytes. */
#define IB_PR_DGID      (1u << 2)
#define IB_PR_SGID      (1u << 3)
#define IB_PR_DLID      (1u << 4)
#define IB_PR_SLID      (1u << 5)
#define IB_PR_TCLASS    (1u << 10)
#define IB_PR_NUMB_PATH (1u << 12)
#define IB_PR_PKEY      (1u << 13)
#define IB_PR_SL        (1u << 15)
#define IB_PR_MASK_IPOIB 0x340cu

struct ib_path_record {
    ovs_be32 service_id[2];
    struct ib_gid dgid;
    struct ib_gid sgid;
    ovs_be16 dlid;
    ovs_be16 slid;
    ovs_be32 raw_flow_hop;      /* Raw 1, reserved 3, flow 20, hop limit 8. */
    uint8_t tclass;
    uint8_t numb_path;          /* Reversible (1), NumbPath (7). */
    ovs_be16 pkey;
    ovs_be16 qos_sl;            /* QoS class (12), SL (4). */
    uint8_t mtu;                /* Selector (2 bits), MTU (6). */
    uint8_t rate;               /* Selector (2 bits), rate (6). */
    uint8_t life;               /* Selector (2 bits), packet lifetime (6). */
    uint8_t preference;
    uint8_t reserved[6];
};
BUILD_ASSERT_DECL(sizeof(struct ib_path_record) == 64);

/* InformInfo (13.4.8.3): 36 bytes. */
#define IB_TRAP_PORT_IN_SERVICE  64
#define IB_TRAP_PORT_OUT_SERVICE 65
#define IB_TRAP_GROUP_CREATED    66
#define IB_TRAP_GROUP_DELETED    67
struct ib_inform_info {
    struct ib_gid gid;
    ovs_be16 lid_begin;
    ovs_be16 lid_end;
    ovs_be16 reserved;
    uint8_t is_generic;
    uint8_t subscribe;
    ovs_be16 type;
    ovs_be16 trap_number;       /* Or device ID. */
    ovs_be32 qpn_resp;          /* QPN (24), reserved (3), RespTime (5). */
    ovs_be32 producer;          /* Reserved (8), producer type (24). */
};
BUILD_ASSERT_DECL(sizeof(struct ib_inform_info) == 36);

/* Notice (13.4.8.2): 80 bytes.  For traps 64 to 67, 'details' holds 6
 * reserved bytes and then the GID (14.2.5.1). */
struct ib_notice {
    uint8_t generic_type;       /* IsGeneric (1), type (7). */
    uint8_t producer[3];
    ovs_be16 trap_number;
    ovs_be16 issuer_lid;
    ovs_be16 toggle_count;
    uint8_t details[54];
    struct ib_gid issuer_gid;
};
BUILD_ASSERT_DECL(sizeof(struct ib_notice) == 80);

/* Messages of the software fabric: Documentation/topics/soft-fabric.rst. */
#define IB_SOFT_MAGIC   0x4942
#define IB_SOFT_VERSION 1
enum ib_soft_type {
    IB_SOFT_ATTACH = 1,         /* HCA to fabric. */
    IB_SOFT_PORT = 2,           /* Fabric to HCA. */
    IB_SOFT_PACKET = 3,         /* Either way. */
    IB_SOFT_DETACH = 4,         /* HCA to fabric. */
    IB_SOFT_PORTCAP = 5,        /* Fabric to HCA. */
};

struct ib_soft_header {
    ovs_be16 magic;
    uint8_t version;
    uint8_t type;
};
BUILD_ASSERT_DECL(sizeof(struct ib_soft_header) == 4);

struct ib_soft_attach {
    struct ib_soft_header h;
    ovs_be32 node_guid[2];      /* High word first, as all 64-bit fields. */
    ovs_be32 port_guid[2];
    uint8_t max_mtu;
    uint8_t reserved[3];
    char description[64];
};
BUILD_ASSERT_DECL(sizeof(struct ib_soft_attach) == 88);

#define IB_SOFT_MAX_PKEYS 128
#define IB_SOFT_PORT_REREGISTER 0x01
struct ib_soft_port {
    struct ib_soft_header h;
    uint8_t state;              /* 1 Down, 2 Init, 3 Armed, 4 Active. */
    uint8_t lmc;
    ovs_be16 lid;
    ovs_be16 sm_lid;
    uint8_t sm_sl;
    uint8_t subnet_timeout;
    ovs_be32 gid_prefix[2];
    uint8_t active_mtu;
    uint8_t active_width;
    uint8_t active_speed;
    uint8_t flags;
    ovs_be16 n_pkeys;
    ovs_be16 pkeys[];           /* 'n_pkeys' of them. */
};
#define IB_SOFT_PORT_LEN offsetof(struct ib_soft_port, pkeys)
BUILD_ASSERT_DECL(IB_SOFT_PORT_LEN == 26);

#define IB_SOFT_PORTCAP_GRH_REQUIRED 0x01
struct ib_soft_portcap {
    struct ib_soft_header h;
    uint8_t flags;
};
#define IB_SOFT_PORTCAP_LEN 5   /* On the wire; the struct has padding. */
BUILD_ASSERT_DECL(offsetof(struct ib_soft_portcap, flags) == 4);

/* Largest message: a packet. */
#define IB_SOFT_MSG_MAX (4 + IB_UD_PACKET_MAX)

#endif /* ipoib-wire.h */
