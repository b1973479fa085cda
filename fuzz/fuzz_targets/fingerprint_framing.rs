#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| semel::fuzz::fingerprint_framing(data));
