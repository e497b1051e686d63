#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Some(target) = sluice_fuzz_targets::target("smtp_reply") {
        (target.run)(data);
    }
});
