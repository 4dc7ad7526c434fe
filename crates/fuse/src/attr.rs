//! Device numbers as FUSE sends them.
//!
//! Source: Linux include/linux/kdev_t.h, `new_encode_dev`; include/uapi/linux/fuse.h.

use obento_base::DeviceNumber;

/// Encodes a device number in 32 bits. The 12 bits of the major number are between the low 8 and the high 12 bits of
/// the minor number.
pub(crate) fn encode_device(device: DeviceNumber) -> u32 {
    let (major, minor) = (device.major & 0xfff, device.minor & 0xf_ffff);
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// Decodes a device number from 32 bits.
pub(crate) fn decode_device(rdev: u32) -> DeviceNumber {
    DeviceNumber { major: (rdev >> 8) & 0xfff, minor: (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_survives_encoding_and_decoding() {
        for (major, minor, wire) in [(8, 1, 0x801), (0xfff, 0xf_ffff, u32::MAX), (259, 0x12345, 0x1231_0345)]
        {
            let device = DeviceNumber { major, minor };
            assert_eq!(encode_device(device), wire);
            assert_eq!(decode_device(wire), device);
        }
    }
}
