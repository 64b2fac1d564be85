//! Numbers as people read them.

/// A number with three digits that matter, or with thousands apart.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 1000.0 {
        return thousands(value);
    }
    let decimals = match size {
        100.0.. => 0,
        10.0.. => 1,
        0.1.. => 2,
        0.0.. => 3,
        _ => 2,
    };
    if value == 0.0 { "0".to_owned() } else { format!("{value:.decimals$}") }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |rest| ("-", rest));
    let mut grouped = sign.to_owned();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_show_what_matters() {
        let check = |value, text: &str| assert_eq!(number(value), text);
        check(0.0, "0");
        check(0.0312, "0.031");
        check(0.5, "0.50");
        check(12.34, "12.3");
        check(999.4, "999");
        check(1000.0, "1,000");
        check(55_995.4, "55,995");
        check(1_234_567.0, "1,234,567");
        check(-1_234.0, "-1,234");
    }
}
