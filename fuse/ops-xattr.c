/* SPDX-License-Identifier: Apache-2.0 */
/* Extended attributes. None yet in any namespace: -ENOSYS makes the kernel answer EOPNOTSUPP by
 * itself from then on, so an `ls -l` costs no request a file. user.hicache.* and the engines' own
 * user.* belong here. */
#include "fuse/internal.h"

void hc_op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
		    size_t size, int flags)
{
	fuse_reply_err(req, ENOSYS);
}

void hc_op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
	fuse_reply_err(req, ENOSYS);
}

void hc_op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
	fuse_reply_err(req, ENOSYS);
}

void hc_op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
	fuse_reply_err(req, ENOSYS);
}
