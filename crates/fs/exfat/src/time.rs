//! Times: a local date and time of 32 bits, and the offset of local time from UTC. Two of the three times also have
//! hundredths of a second.
//!
//! Source: specification, 7.4.5 to 7.4.10. Date and time are encoded as in FAT: `obento_clusters::time`.

use obento_base::Timestamp;
use obento_clusters::time::{self, Zone};

/// Returns the zone of an offset byte, or `default` if the byte is not valid.
fn zone_of(offset: u8, default: Zone) -> Zone {
    if offset & 0x80 == 0 {
        return default;
    }
    let quarters = i16::from(offset & 0x7f);
    let quarters = if quarters >= 64 { quarters.saturating_sub(128) } else { quarters };
    Zone(quarters.saturating_mul(15))
}

/// Returns the offset byte of a zone, in quarters of an hour.
fn offset_of(zone: Zone) -> u8 {
    let quarters = zone.0.div_euclid(15).clamp(-64, 63);
    u8::try_from(quarters.rem_euclid(128)).unwrap_or(0) | 0x80
}

/// Returns the time that a timestamp encodes.
pub fn decode(stamp: u32, hundredths: u8, offset: u8, zone: Zone) -> Timestamp {
    let [time_low, time_high, date_low, date_high] = stamp.to_le_bytes();
    let date = u16::from_le_bytes([date_low, date_high]);
    let time_of_day = u16::from_le_bytes([time_low, time_high]);
    time::decode(date, time_of_day, hundredths.min(199), zone_of(offset, zone))
}

/// Returns timestamp, hundredths of seconds (0 to 199) and offset byte of `moment`.
pub fn encode(moment: Timestamp, zone: Zone) -> (u32, u8, u8) {
    let offset = offset_of(zone);
    let (date, time_of_day, hundredths) = time::encode(moment, zone_of(offset, zone));
    (u32::from(date) << 16 | u32::from(time_of_day), hundredths, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_kept_to_ten_milliseconds_whatever_the_zone() {
        let moment = Timestamp::new(1_709_251_199, 750_000_000);
        for minutes in [0, 60, 330, 345, 840, -15, -570, -960] {
            let (stamp, hundredths, offset) = encode(moment, Zone(minutes));
            assert_eq!(decode(stamp, hundredths, offset, Zone(7)), moment, "{minutes}");
        }
        // 2024-03-01 01:59:59 at UTC+2.
        assert_eq!(encode(moment, Zone(120)).0, (44 << 9 | 3 << 5 | 1) << 16 | 1 << 11 | 59 << 5 | 29);
        assert_eq!(encode(moment, Zone(120)).2, 0x88);
        assert_eq!(encode(moment, Zone(-60)).2, 0xfc);
    }

    #[test]
    fn without_an_offset_the_zone_of_the_mount_counts() {
        let (stamp, hundredths, _) = encode(Timestamp::new(1_700_000_000, 0), Zone(120));
        assert_eq!(decode(stamp, hundredths, 0, Zone(120)).secs(), 1_700_000_000);
        assert_eq!(decode(stamp, hundredths, 0x08, Zone(0)).secs(), 1_700_007_200);
    }
}
