//! A CSV report with one line per sample, for programs.

use std::fmt::Write as _;

use crate::results::Results;

/// Returns a header, then a line for each sample of each phase. Fields follow RFC 4180.
pub fn csv(results: &Results) -> String {
    let mut out = "workload,phase,target,rotation,figure,unit,seconds,operations,bytes,durable_seconds,\
                   processor_seconds,peak_memory,read,written,flushes,disturbed\n"
        .to_owned();
    for cell in &results.cells {
        for sample in &cell.samples {
            for phase in &sample.phases {
                let traffic = |of: fn(crate::machine::Traffic) -> Option<u64>| {
                    sample.traffic.and_then(of).map_or_else(String::new, |count| count.to_string())
                };
                let fields = [
                    field(&cell.workload),
                    field(&phase.name),
                    field(&cell.target),
                    sample.rotation.to_string(),
                    phase.figure().to_string(),
                    phase.measure.unit().to_owned(),
                    phase.seconds.to_string(),
                    phase.operations.to_string(),
                    phase.bytes.to_string(),
                    sample.durable_seconds.to_string(),
                    sample.processor_seconds.to_string(),
                    sample.peak_memory.to_string(),
                    traffic(|traffic| Some(traffic.read)),
                    traffic(|traffic| Some(traffic.written)),
                    traffic(|traffic| traffic.flushes),
                    field(sample.disturbed.as_deref().unwrap_or_default()),
                ];
                let _ = writeln!(out, "{}", fields.join(","));
            }
        }
    }
    out
}

fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn every_line_has_as_many_fields_as_the_header() {
        let text = csv(&sample());
        let fields: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [16; 7]);
    }

    #[test]
    fn values_with_a_comma_are_quoted() {
        assert_eq!(field("kernel:ext4,data=journal"), "\"kernel:ext4,data=journal\"");
        assert_eq!(field("say \"so\""), "\"say \"\"so\"\"\"");
    }
}
