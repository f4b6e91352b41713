//! What stands for a name: an earlier part of the same one, or a type of the standard library.

use super::machine::{Machine, Node, MAX_DEPTH};

impl Machine<'_> {
    pub(super) fn remember(&mut self, node: Node) -> Option<()> {
        self.substitutions.push(node.clone());
        self.push(node)
    }

    pub(super) fn substituted(&mut self) -> Option<()> {
        let mut count = None;
        loop {
            if let Some(number) = self.natural() {
                count = Some(number);
            }
            let letter = self.next()?;
            if letter == b'_' {
                let number = count.map_or(26, |count: usize| count.saturating_add(27));
                let node = self.substitutions.get(number)?.clone();
                return self.push(node);
            }
            let node = self.substitutions.get(usize::from(letter.to_ascii_lowercase().checked_sub(b'a')?))?.clone();
            for _ in 0..count.take().unwrap_or(1).min(MAX_DEPTH) {
                self.push(node.clone());
            }
            if letter.is_ascii_uppercase() {
                return Some(());
            }
        }
    }

    pub(super) fn standard(&mut self) -> Option<()> {
        match *self.rest.first()? {
            b'o' => self.next().and_then(|_| self.push(Node::Entity("__C".to_owned()))),
            b'C' => self.next().and_then(|_| self.push(Node::Entity("__C_Synthesized".to_owned()))),
            b'g' => {
                self.next();
                self.pop_type()?;
                self.remember(Node::Type("Swift.Optional".to_owned(), 1))
            }
            _ => {
                let count = self.natural().unwrap_or(1);
                let table = if self.next_if(b'c') { CONCURRENCY } else { STANDARD };
                let letter = char::from(self.next()?);
                let name = table.split(' ').find_map(|name| name.strip_prefix(letter))?;
                for _ in 0..count.min(MAX_DEPTH) {
                    self.push_type(&format!("Swift.{name}"));
                }
                Some(())
            }
        }
    }
}

/// Types of the standard library by letter.
const STANDARD: &str =
    "AAutoreleasingUnsafeMutablePointer aArray bBool DDictionary dDouble fFloat hSet IDefaultIndices \
    iInt JCharacter NClosedRange nRange OObjectIdentifier PUnsafePointer pUnsafeMutablePointer RUnsafeBufferPointer \
    rUnsafeMutableBufferPointer SString sSubstring uUInt VUnsafeRawPointer vUnsafeMutableRawPointer \
    WUnsafeRawBufferPointer wUnsafeMutableRawBufferPointer qOptional BBinaryFloatingPoint EEncodable eDecodable \
    FFloatingPoint GRandomNumberGenerator HHashable jNumeric KBidirectionalCollection kRandomAccessCollection \
    LComparable lCollection MMutableCollection mRangeReplaceableCollection QEquatable TSequence tIteratorProtocol \
    UUnsignedInteger XRangeExpression xStrideable YRawRepresentable yStringProtocol ZSignedInteger zBinaryInteger";
const CONCURRENCY: &str = "AActor CCheckedContinuation cUnsafeContinuation ECancellationError eUnownedSerialExecutor \
    FExecutor fSerialExecutor GTaskGroup gThrowingTaskGroup hTaskExecutor IAsyncIteratorProtocol iAsyncSequence \
    JUnownedJob MMainActor PTaskPriority SAsyncStream sAsyncThrowingStream TTask tUnsafeCurrentTask";
