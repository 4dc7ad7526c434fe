//! Threads, where there are any.

#[cfg(all(feature = "std", obento_env = "shuttle"))]
use shuttle::thread as threads;
#[cfg(all(feature = "std", not(obento_env = "shuttle")))]
use std::thread as threads;

/// A thread that was started.
#[derive(Debug)]
pub struct Thread {
    #[cfg(feature = "std")]
    inner: threads::JoinHandle<()>,
}

impl Thread {
    /// Returns once the thread has ended; at once if it is the one that asks.
    pub fn join(self) {
        #[cfg(feature = "std")]
        if self.inner.thread().id() != threads::current().id() {
            // A panic over there was reported over there.
            let _ = self.inner.join();
        }
    }
}

/// Runs `work` on a thread of its own. `None` where no thread can be had: then `work` is not done, and whoever asks
/// does without.
pub fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Option<Thread> {
    #[cfg(feature = "std")]
    {
        let builder = threads::Builder::new().name(alloc::string::String::from(name));
        builder.spawn(work).ok().map(|inner| Thread { inner })
    }
    #[cfg(not(feature = "std"))]
    {
        let _ = (name, work);
        None
    }
}
