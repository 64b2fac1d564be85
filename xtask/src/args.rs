//! Arguments of the commands: `--name NUMBER`, or none at all.

use anyhow::{Context as _, bail};

pub(crate) fn none(args: Vec<String>) -> anyhow::Result<()> {
    match args.first() {
        None => Ok(()),
        Some(arg) => bail!("{arg:?} is not understood: this command takes no options"),
    }
}

/// The numbers given for `names`, in that order.
pub(crate) fn numbers<const N: usize>(
    args: Vec<String>,
    names: [&str; N],
) -> anyhow::Result<[Option<u64>; N]> {
    let mut values = [None; N];
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let known = names.iter().zip(&mut values).find(|(name, _)| **name == arg);
        let Some((name, value)) = known else {
            bail!("{arg:?} is not understood: this command takes {}", names.join(", "));
        };
        let text = args.next().with_context(|| format!("{name} needs a number"))?;
        let number = text.parse().with_context(|| format!("{name} {text}: not a number"))?;
        *value = Some(number);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &[&str], expected: Result<[Option<u64>; 2], &str>) {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let parsed = numbers(args, ["--rounds", "--seed"]).map_err(|error| format!("{error:#}"));
        match (parsed, expected) {
            (Ok(numbers), Ok(expected)) => assert_eq!(numbers, expected),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{error}"),
            (parsed, expected) => panic!("{parsed:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn numbers_come_in_the_order_of_their_names() {
        check(&[], Ok([None, None]));
        check(&["--seed", "7"], Ok([None, Some(7)]));
        check(&["--seed", "7", "--rounds", "2"], Ok([Some(2), Some(7)]));
        check(&["--seed"], Err("--seed needs a number"));
        check(&["--seed", "x"], Err("not a number"));
        check(&["--fast"], Err("takes --rounds, --seed"));
    }
}
