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

#ifndef IPOIB_DEV_H
#define IPOIB_DEV_H 1

/* A partition of an HCA port as one netdev has it open, what it remembers over
 * a restart, and the list of all of them.  A netdev has one or, for VLANs,
 * several: see ipoib-port.h.
 *
 * Thread-safety: the functions take what locks they need; main thread unless
 * said otherwise. */

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "ipoib-partition.h"
#include "openvswitch/list.h"
#include "ovs-atomic.h"

struct smap;

struct ipoib_dev_options {
    char *device;               /* options:device. */
    uint8_t port;               /* options:port. */
    uint16_t pkey;              /* With bit 15 set. */
    uint16_t pkey_given;        /* As the user wrote it. */
    uint16_t vid;               /* VLAN, 0: untagged. */
    struct ipoib_partition_config config;
};

struct ipoib_dev {
    struct ovs_list node;       /* In the list of all ports. */
    char *name;                 /* Of the netdev. */
    char *device;
    uint8_t port_num;
    uint16_t pkey;
    uint16_t vid;               /* VLAN, 0: untagged. */
    bool is_first;              /* Of its netdev's. */
    struct ipoib_hca *hca;
    struct ipoib_hca_port *port;
    struct ipoib_partition *part;

    struct ipoib_hca_client client; /* To write 'file' in time. */
    char *file;                 /* What is remembered. */
    long long int next_save;
    pthread_t writer;           /* A disk may be slow: a thread for each time
                                 * that the file is written... */
    bool has_writer;            /* ...which is to be joined... */
    atomic_bool writing;        /* ...and is at work. */
    char *text;                 /* What it writes; its own while at work. */
    int save_error;             /* errno value of the last try; its own too. */
    bool check_kernel;          /* To look for the kernel's devices. */
    long long int next_check;   /* Not before. */
};

/* Opens what 'options' name for netdev 'name'.  'ops' are called by the
 * control thread.  On failure returns a positive errno value and stores in
 * '*errp' a message that names the option and the value; the caller frees
 * it. */
int ipoib_dev_open(const char *name, const struct ipoib_dev_options *options,
                   const struct ipoib_partition_ops *ops, void *aux,
                   struct ipoib_dev **, char **errp);
/* No PMD.  Adds what it has counted to 'rx' and 'tx', if they are not NULL. */
void ipoib_dev_close(struct ipoib_dev *, struct ipoib_rx_stats *rx,
                     struct ipoib_tx_stats *tx);

/* True if the device has failed.  It can be opened again when it returns. */
bool ipoib_dev_has_failed(const struct ipoib_dev *);

/* True if 'dev' is on the device and port that 'options' name. */
bool ipoib_dev_matches(const struct ipoib_dev *,
                       const struct ipoib_dev_options *options);

/* The frames of 'dev' are those of VLAN 'vid' from now on (0: untagged), and
 * it is the first of its netdev or not.  With the HCA's mutex. */
void ipoib_dev_set_vlan(struct ipoib_dev *, uint16_t vid, bool is_first);

/* No PMD.  0 or a positive errno value. */
int ipoib_dev_configure(struct ipoib_dev *,
                        const struct ipoib_partition_config *);

/* True if the port carries traffic. */
bool ipoib_dev_is_up(const struct ipoib_dev *);
struct eth_addr ipoib_dev_mac(const struct ipoib_dev *);
int ipoib_dev_mtu(const struct ipoib_dev *);
/* Limits the MTU to 'mtu' (0: to that of the group). */
void ipoib_dev_set_mtu(struct ipoib_dev *, int mtu);
/* What the broadcast group takes, INT_MAX if that is not known yet. */
int ipoib_dev_max_mtu(const struct ipoib_dev *);
/* "up", or "down: REASON", which the caller frees. */
char *ipoib_dev_state(const struct ipoib_dev *);
/* What the Interface's 'status' column shows. */
void ipoib_dev_get_status(struct ipoib_dev *, struct smap *);
/* Link speed in Mb/s, 0 if the port is not active. */
uint32_t ipoib_dev_speed(struct ipoib_dev *);
/* Adds up the counters of all queues and of the control thread. */
void ipoib_dev_get_stats(struct ipoib_dev *, struct ipoib_rx_stats *,
                         struct ipoib_tx_stats *);

/* Calls 'cb' for the port 'name', or for all if 'name' is NULL, with the
 * mutex of its HCA.  Returns how many there were. */
size_t ipoib_dev_for_each(const char *name,
                          void (*cb)(struct ipoib_dev *, void *aux),
                          void *aux);

#endif /* ipoib-dev.h */
