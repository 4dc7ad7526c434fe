//! Requests to Linux that idle processors wake up immediately.
//!
//! A request is in force until it is replaced or the file is closed, so a killed server leaves none behind.
//! Only root may make requests. Source: Linux Documentation/power/pm_qos_interface.rst, `/dev/cpu_dma_latency`;
//! include/linux/pm_qos.h `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// The longest time that a processor may take to wake up, in microseconds: none, and the default of Linux.
const AT_ONCE: i32 = 0;
const WHENEVER: i32 = 2000 * 1_000_000;

/// The wake-up latency of idle processors.
pub(crate) struct Idle {
    latency: File,
    is_awake: AtomicBool,
}

impl Idle {
    /// Opens the device. Returns `None` if this process may not use it.
    pub(crate) fn open() -> Option<Self> {
        File::options().write(true).open("/dev/cpu_dma_latency").ok().and_then(Self::over)
    }

    /// Writes requests to `latency`. Returns `None` if the first write, a request for the default, fails.
    pub(crate) fn over(latency: File) -> Option<Self> {
        let this = Self { latency, is_awake: AtomicBool::new(false) };
        this.ask(WHENEVER).then_some(this)
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.is_awake.load(Ordering::Relaxed)
    }

    /// Makes idle processors wake up immediately from now on.
    pub(crate) fn keep_awake(&self) {
        if !self.is_awake.swap(true, Ordering::Relaxed) {
            let _ = self.ask(AT_ONCE);
        }
    }

    /// Lets idle processors sleep as deeply as the system's default allows.
    pub(crate) fn let_sleep(&self) {
        if self.is_awake.swap(false, Ordering::Relaxed) {
            let _ = self.ask(WHENEVER);
        }
    }

    fn ask(&self, microseconds: i32) -> bool {
        (&self.latency).write_all(&microseconds.to_ne_bytes()).is_ok()
    }
}
