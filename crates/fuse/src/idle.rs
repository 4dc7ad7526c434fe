//! Asking Linux that processors with nothing to do wake at once.
//!
//! What is asked lasts until it is taken back or the file is closed, so that nothing is left behind by a server that is killed.
//! Only root may ask. Source: Linux Documentation/power/pm_qos_interface.rst, `/dev/cpu_dma_latency`;
//! include/linux/pm_qos.h `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// Microseconds that waking may take: none, and as long as it likes.
const AT_ONCE: i32 = 0;
const WHENEVER: i32 = 2000 * 1_000_000;

/// Idle processors, while someone may ask something of them.
pub(crate) struct Idle {
    latency: File,
    is_awake: AtomicBool,
}

impl Idle {
    /// None where one may not ask.
    pub(crate) fn open() -> Option<Self> {
        File::options().write(true).open("/dev/cpu_dma_latency").ok().and_then(Self::over)
    }

    /// `latency` takes the numbers. None if it does not: opening the device alone asks for nothing.
    pub(crate) fn over(latency: File) -> Option<Self> {
        let this = Self { latency, is_awake: AtomicBool::new(false) };
        this.ask(WHENEVER).then_some(this)
    }

    pub(crate) fn is_awake(&self) -> bool {
        self.is_awake.load(Ordering::Relaxed)
    }

    /// They wake at once from now on.
    pub(crate) fn keep_awake(&self) {
        if !self.is_awake.swap(true, Ordering::Relaxed) {
            let _ = self.ask(AT_ONCE);
        }
    }

    /// They may sleep as they like.
    pub(crate) fn let_sleep(&self) {
        if self.is_awake.swap(false, Ordering::Relaxed) {
            let _ = self.ask(WHENEVER);
        }
    }

    fn ask(&self, microseconds: i32) -> bool {
        (&self.latency).write_all(&microseconds.to_ne_bytes()).is_ok()
    }
}
