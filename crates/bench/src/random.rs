//! Pseudorandom numbers, which are the same in each run with the same seed.

pub use fastrand::Rng;

/// Returns a number of the gamma distribution with this `shape` and `mean`.
///
/// Source: G. Marsaglia and W. W. Tsang, "A simple method for generating gamma variables", 2000, with the boost for
/// shapes below 1 of its section 6.
pub fn gamma(rng: &mut Rng, shape: f64, mean: f64) -> f64 {
    if shape < 1.0 {
        let boost = unit(rng).powf(1.0 / shape);
        return gamma(rng, shape + 1.0, mean * (shape + 1.0) / shape) * boost;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(rng);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && unit(rng).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v * mean / shape;
        }
    }
}

/// Returns a number of the standard normal distribution (Box and Muller, 1958).
pub fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * unit(rng).ln()).sqrt() * (std::f64::consts::TAU * rng.f64()).cos()
}

/// Returns a number greater than 0 and at most 1, so that its logarithm is finite.
fn unit(rng: &mut Rng) -> f64 {
    1.0 - rng.f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gamma_numbers_have_the_mean_and_the_variance_of_their_distribution() {
        for shape in [0.5, 1.5, 4.0] {
            let mut rng = Rng::with_seed(1);
            let numbers: Vec<f64> = (0..200_000).map(|_| gamma(&mut rng, shape, 16_384.0)).collect();
            let mean = numbers.iter().sum::<f64>() / numbers.len() as f64;
            let variance =
                numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / numbers.len() as f64;
            let expected = 16_384.0_f64.powi(2) / shape;
            assert!((mean / 16_384.0 - 1.0).abs() < 0.01, "shape {shape}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.03, "shape {shape}: variance {variance}");
        }
    }

    #[test]
    fn a_seed_determines_the_sequence() {
        let draw = |seed| {
            let mut rng = Rng::with_seed(seed);
            std::iter::repeat_with(|| gamma(&mut rng, 1.5, 10.0)).take(5).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
