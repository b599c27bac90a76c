//! Which calls of the kernel a container's programs may make.
//!
//! The kernel is what all pods and the machine share, so the less of it a pod can talk to, the fewer of its faults are a way out.
//! There is one filter for everybody, and no setting of a pod widens it: it has what servers, shells, compilers, libvirt and QEMU
//! use, and nothing of what manages a machine.
//!
//! | a call | gets |
//! |---|---|
//! | of [`ALLOWED`] | done |
//! | of [`REFUSED`] | `EPERM`, as without the capability for it |
//! | `clone` | done, unless it makes namespaces |
//! | `socket`, `socketpair` | done for the families of [`FAMILIES`], and for local ones |
//! | any other, such as one of a newer kernel | `ENOSYS`, for which programs have another way |
//! | of another architecture, such as 32 bits | the program is killed |
//!
//! Names that a machine's architecture or libseccomp does not know are passed over by the runtime.

use super::spec::{Argument, Calls, Seccomp};

/// What may be done, by what it is about.
const ALLOWED: &[&str] = &[
    // files
    "access chdir chmod chown close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2 fadvise64 \
     fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync flock fstat fstatfs fsync ftruncate \
     futimesat getcwd getdents getdents64 ioctl lchown link linkat lseek lstat mkdir mkdirat mknod mknodat \
     name_to_handle_at newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read readahead \
     readlink readlinkat readv rename renameat renameat2 rmdir sendfile splice stat statfs statx symlink symlinkat sync \
     sync_file_range syncfs tee truncate umask unlink unlinkat utime utimensat utimes vmsplice write writev cachestat \
     listmount statmount",
    "fgetxattr flistxattr fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr \
     lremovexattr lsetxattr removexattr removexattrat setxattr setxattrat",
    // waiting for files and being told about them
    "epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 fanotify_mark \
     inotify_add_watch inotify_init inotify_init1 inotify_rm_watch poll ppoll pselect6 select",
    "io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit ioprio_get ioprio_set",
    // memory; `userfaultfd` is how a guest that moves gets its memory later, and a setting of the machine says who may
    "brk get_mempolicy madvise map_shadow_stack mbind membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall \
     mmap mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_madvise \
     process_mrelease remap_file_pages set_mempolicy set_mempolicy_home_node userfaultfd",
    // processes and threads
    "alarm arch_prctl capget capset chroot execve execveat exit exit_group fork get_robust_list getcpu getpgid getpgrp \
     getpid getppid getpriority getrlimit getrusage getsid gettid kcmp kill pause pidfd_getfd pidfd_open \
     pidfd_send_signal prctl prlimit64 process_vm_readv process_vm_writev ptrace restart_syscall rseq \
     sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler \
     sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp \
     set_robust_list set_tid_address setpgid setpriority setrlimit setsid sysinfo times tkill tgkill uname vfork wait4 \
     waitid getrandom riscv_flush_icache riscv_hwprobe",
    "landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr lsm_list_modules \
     lsm_set_self_attr",
    "getegid geteuid getgid getgroups getresgid getresuid getuid setfsgid setfsuid setgid setgroups setregid setresgid \
     setresuid setreuid setuid",
    // signals, locks, time
    "rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait \
     rt_tgsigqueueinfo sigaltstack signalfd signalfd4",
    "futex futex_requeue futex_wait futex_waitv futex_wake",
    "adjtimex clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep setitimer time timer_create \
     timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime",
    // talking to others
    "accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom recvmmsg recvmsg sendmmsg sendmsg \
     sendto setsockopt shutdown pipe pipe2",
    "mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd semctl semget \
     semop semtimedop shmat shmctl shmdt shmget",
];

/// What manages the machine, reaches around file systems' rights, or is a large part of the kernel that no pod needs.
const REFUSED: &[&str] = &[
    // mounts and namespaces
    "fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree open_tree_attr pivot_root setns umount2 \
     unshare",
    // files by their number in a file system, and news of everybody's files
    "fanotify_init open_by_handle_at",
    // keys: they belong to a user's number, which is the machine's too
    "add_key keyctl request_key",
    // the kernel's inside
    "bpf delete_module finit_module init_module ioperm iopl kexec_file_load kexec_load lookup_dcookie perf_event_open \
     syslog",
    "io_uring_enter io_uring_register io_uring_setup",
    "migrate_pages move_pages",
    // the machine
    "acct clock_adjtime clock_settime quotactl quotactl_fd reboot setdomainname sethostname settimeofday swapoff swapon \
     vhangup",
];

/// Families of sockets: local, IPv4, IPv6, the kernel's news about links, and packets, which need a capability. Others are rarely
/// used and often faulty parts of the kernel, or, as with those to virtual machines and their host, know no network namespaces.
const FAMILIES: &[u64] = &[LOCAL_FAMILY, 2, 10, 16, LARGEST_FAMILY];
const LOCAL_FAMILY: u64 = 1;
const LARGEST_FAMILY: u64 = 17;

/// Flags of `clone` that make namespaces: mounts, control groups, names, IPC, users, processes, network.
const NAMESPACES: u64 = 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
/// Personalities of programs that change nothing about their memory: the usual one, 32 bits, an old kernel's name, both, and the question.
const PERSONALITIES: &[u64] = &[0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;
const EAFNOSUPPORT: u32 = 97;

/// The filter of every container.
pub fn filter() -> Seccomp {
    let mut calls = vec![allow(&words(ALLOWED), vec![]), refuse(&words(REFUSED), EPERM, vec![])];
    calls.push(allow(&["clone"], vec![argument("SCMP_CMP_MASKED_EQ", NAMESPACES, 0)]));
    // Its flags are in memory, where no filter sees them. Libraries fall back to `clone`.
    calls.push(refuse(&["clone3"], ENOSYS, vec![]));
    let family = |&family: &u64| allow(&["socket"], vec![argument("SCMP_CMP_EQ", family, 0)]);
    calls.extend(FAMILIES.iter().map(family));
    calls.push(allow(&["socketpair"], vec![argument("SCMP_CMP_EQ", LOCAL_FAMILY, 0)]));
    calls.push(refuse(&["socket"], EAFNOSUPPORT, vec![argument("SCMP_CMP_GT", LARGEST_FAMILY, 0)]));
    let personality = |&which: &u64| allow(&["personality"], vec![argument("SCMP_CMP_EQ", which, 0)]);
    calls.extend(PERSONALITIES.iter().map(personality));
    Seccomp { default_action: "SCMP_ACT_ERRNO".to_owned(), default_errno_ret: Some(ENOSYS), syscalls: calls }
}

fn words<'a>(groups: &[&'a str]) -> Vec<&'a str> {
    groups.iter().flat_map(|group| group.split_whitespace()).collect()
}

fn allow(names: &[&str], args: Vec<Argument>) -> Calls {
    Calls { names: owned(names), action: "SCMP_ACT_ALLOW".to_owned(), errno_ret: None, args }
}

fn refuse(names: &[&str], error: u32, args: Vec<Argument>) -> Calls {
    Calls { names: owned(names), action: "SCMP_ACT_ERRNO".to_owned(), errno_ret: Some(error), args }
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// A condition on the first argument.
fn argument(op: &str, value: u64, value_two: u64) -> Argument {
    Argument { index: 0, value, value_two, op: op.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// What has conditions.
    const APART: [&str; 5] = ["clone", "clone3", "socket", "socketpair", "personality"];

    #[test]
    fn every_call_is_judged_once() {
        let mut seen = BTreeSet::new();
        for name in words(ALLOWED).into_iter().chain(words(REFUSED)).chain(APART) {
            assert!(seen.insert(name), "{name} is there twice");
        }
    }

    #[test]
    fn ways_to_the_machine_are_not_allowed() {
        let allowed = words(ALLOWED);
        for name in ["mount", "setns", "unshare", "open_by_handle_at", "bpf", "keyctl", "init_module", "clone3"] {
            assert!(!allowed.contains(&name), "{name}");
        }
        assert_eq!(filter().default_errno_ret, Some(ENOSYS));
    }

    #[test]
    fn threads_are_made_and_namespaces_are_not() {
        // CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS | CLONE_PARENT_SETTID |
        // CLONE_CHILD_CLEARTID, as a library makes threads
        assert_eq!(0x003d_0f00 & NAMESPACES, 0);
        // CLONE_NEWUSER
        assert_ne!(0x1000_0000 & NAMESPACES, 0);
    }
}
