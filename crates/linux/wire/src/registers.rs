//! The registers of programs in the guest, on processors with more of them than the kernel has room for.
//!
//! Linux 6.1 as a process keeps 2,696 bytes of registers for each program: enough for AVX-512, but not for AMX,
//! which needs 11,008 bytes. The host accepts only complete sets (`xstateregs_set` of arch/x86/kernel/fpu/regset.c), so
//! that every program of the guest would end with a signal. If the host refuses to return complete sets, the kernel
//! uses the older call for the x87 and SSE registers only (arch/x86/um/os-Linux/registers.c). All other registers are
//! then lost at each page fault. The agent is compiled without them, and [`BASELINE`] makes its C library avoid them.

/// Bytes of registers for which the kernel has room. Source: `HOST_FP_SIZE` of arch/x86/um/user-offsets.c.
#[cfg(target_arch = "x86_64")]
const ROOM: u32 = 2696;

/// A variable of the environment that makes the GNU C library use only SSE registers. Source: its manual, "Hardware
/// Capability Tunables"; the names that end in `_Usable` are those of versions before 2.33.
pub const BASELINE: &str = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX,-AVX2,-AVX512F,-AVX512VL,-AVX512BW,-AVX_Usable,-AVX2_Usable,-AVX512F_Usable,-AVX_Fast_Unaligned_Load,-XSAVEC,-XSAVE";

/// Returns whether this processor has more registers than the kernel has room for. Source: Intel's manual, volume 1,
/// section 13.2: leaf 13 of CPUID returns the size of the enabled registers.
#[must_use]
pub fn exceed_kernel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{__cpuid, __cpuid_count};
        const LEAF: u32 = 13;
        __cpuid(0).eax >= LEAF && __cpuid_count(LEAF, 0).ebx > ROOM
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Refuses the complete set to this thread, and to programs that it starts, if the kernel has no room for it. The error
/// is that of a host without such sets. Fails if the filter cannot be installed.
#[cfg(feature = "limit")]
pub fn limit() -> Result<(), seccompiler::Error> {
    if exceed_kernel() { refuse_complete_sets() } else { Ok(()) }
}

/// Calls `start`, which starts the kernel, on a thread with this [`limit`]. On the same processors the kernel's command
/// line needs [`BASELINE`]. Panics if the filter cannot be installed, or as `start` does.
#[cfg(feature = "limit")]
pub fn on_limited_thread<T: Send>(start: impl FnOnce() -> T + Send) -> T {
    let limited = || {
        limit().expect("Linux 3.17 and later have filters of system calls");
        start()
    };
    let ended = std::thread::scope(|scope| scope.spawn(limited).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Refuses the complete set, whatever the processor has. Fails as [`limit`] does.
#[cfg(feature = "limit")]
pub fn refuse_complete_sets() -> Result<(), seccompiler::Error> {
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch,
    };
    // Sources: include/uapi/linux/ptrace.h, include/uapi/linux/elf.h.
    const PTRACE_GETREGSET: u64 = 0x4204;
    const NT_X86_XSTATE: u64 = 0x202;
    let is =
        |argument, value| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
    let rule = SeccompRule::new(vec![is(0, PTRACE_GETREGSET)?, is(2, NT_X86_XSTATE)?])?;
    let rules = [(libc::SYS_ptrace, vec![rule])].into();
    let refuse = SeccompAction::Errno(libc::ENODEV.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::x86_64)?;
    let program: BpfProgram = filter.try_into()?;
    seccompiler::apply_filter(&program)
}
