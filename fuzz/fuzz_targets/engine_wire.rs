#![no_main]
use libfuzzer_sys::fuzz_target;
use obento_linux_wire::{Answer, Envelope, decode, encode};

// What each side of the kernel engine reads from the other: bytes that are a message are those that it is written as.
fuzz_target!(|data: &[u8]| {
    if let Some(answer) = decode::<Answer>(data) {
        assert_eq!(encode(&answer), data);
    }
    if let Some(envelope) = decode::<Envelope>(data) {
        assert_eq!(encode(&envelope), data);
    }
});
