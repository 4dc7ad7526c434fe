//! Threads, in environments that have them.

#[cfg(all(feature = "std", obento_env = "shuttle"))]
use shuttle::thread as threads;
#[cfg(all(feature = "std", not(obento_env = "shuttle")))]
use std::thread as threads;

#[cfg(feature = "std")]
static ARE_HELD: core::sync::atomic::AtomicBool = core::sync::atomic::AtomicBool::new(false);

/// Forbids threads for work beside the callers until [`release`] is called. A process calls this before it opens a volume
/// if it gives up rights afterwards: a thread that started before keeps the rights.
#[cfg(feature = "std")]
pub fn hold_back() {
    ARE_HELD.store(true, core::sync::atomic::Ordering::Release);
}

/// Permits threads again.
#[cfg(feature = "std")]
pub fn release() {
    ARE_HELD.store(false, core::sync::atomic::Ordering::Release);
}

/// Returns whether a thread for work beside the callers may start now. Without the thread, the callers do the work.
pub fn may_start() -> bool {
    #[cfg(feature = "std")]
    return !ARE_HELD.load(core::sync::atomic::Ordering::Acquire);
    #[cfg(not(feature = "std"))]
    true
}

#[cfg(all(feature = "std", obento_env = "shuttle"))]
shuttle::thread_local! {
    static IS_EXEMPT: core::cell::Cell<bool> = core::cell::Cell::new(false);
}
#[cfg(all(feature = "std", not(obento_env = "shuttle")))]
std::thread_local! {
    static IS_EXEMPT: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// Calls `act` on behalf of a caller whom no quota limits bind: on Linux, a process with `CAP_SYS_RESOURCE`. In an
/// environment without this state, the limits bind every caller.
pub fn without_limits<T>(act: impl FnOnce() -> T) -> T {
    #[cfg(feature = "std")]
    {
        /// Restores the state also after a panic.
        struct Before(bool);
        impl Drop for Before {
            fn drop(&mut self) {
                IS_EXEMPT.with(|is_exempt| is_exempt.set(self.0));
            }
        }
        let _before = Before(IS_EXEMPT.with(|is_exempt| is_exempt.replace(true)));
        act()
    }
    #[cfg(not(feature = "std"))]
    act()
}

/// Returns whether this thread acts on behalf of a caller whom no quota limits bind.
pub fn is_without_limits() -> bool {
    #[cfg(feature = "std")]
    return IS_EXEMPT.with(core::cell::Cell::get);
    #[cfg(not(feature = "std"))]
    false
}

/// A started thread.
#[derive(Debug)]
pub struct Thread {
    #[cfg(feature = "std")]
    inner: threads::JoinHandle<()>,
    #[cfg(obento_env = "kernel")]
    task: crate::hyper::Task,
}

impl Thread {
    /// Returns once the thread has ended; immediately if the thread itself calls this method.
    pub fn join(self) {
        #[cfg(obento_env = "kernel")]
        self.task.join();
        #[cfg(feature = "std")]
        if self.inner.thread().id() != threads::current().id() {
            // The panic of the thread has been reported already.
            let _ = self.inner.join();
        }
    }
}

/// Runs `work` on a new thread. Returns `None` if no thread is available; `work` is then dropped, and the
/// caller continues without it.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Option<Thread> {
    #[cfg(feature = "std")]
    {
        let builder = threads::Builder::new().name(alloc::string::String::from(name));
        builder.spawn(work).ok().map(|inner| Thread { inner })
    }
    #[cfg(obento_env = "kernel")]
    {
        crate::hyper::spawn(name, alloc::boxed::Box::new(work)).map(|task| Thread { task })
    }
    #[cfg(not(any(feature = "std", obento_env = "kernel")))]
    {
        let _ = (name, work);
        None
    }
}
