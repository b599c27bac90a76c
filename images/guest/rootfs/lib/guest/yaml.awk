# Flattens the YAML that cloud-init seeds are made of to lines `path<TAB>value`, like `users[0].name<TAB>me`.
# Maps, lists, plain and quoted scalars, block scalars, and flow style on one line (so JSON on one line as well).
# Newlines, tabs and backslashes of a value are escaped as printf %b undoes it.

function emit(path, value) {
  gsub(/\\/, "\\\\", value); gsub(/\n/, "\\n", value); gsub(/\t/, "\\t", value)
  printf "%s\t%s\n", path, value
}
function join(path, key) { return path == "" ? key : path "." key }
function skip() { while (substr(text, at, 1) ~ /[ \t]/) at++ }
function quoted(   mark, out, c) {
  mark = substr(text, at, 1); at++; out = ""
  while (at <= length(text)) {
    c = substr(text, at, 1); at++
    if (c == mark) { if (mark == "'" && substr(text, at, 1) == "'") { out = out "'"; at++; continue } return out }
    if (c == "\\" && mark == "\"") {
      c = substr(text, at, 1); at++
      c = c == "n" ? "\n" : c == "t" ? "\t" : c
    }
    out = out c
  }
  return out
}
# A value in flow style at `at`.
function flow(path,   c, key, count, start) {
  skip(); c = substr(text, at, 1)
  if (c == "{") {
    at++
    while (1) {
      skip(); c = substr(text, at, 1)
      if (c == "}" || c == "") { at++; return }
      if (c == ",") { at++; continue }
      if (c == "\"" || c == "'") key = quoted()
      else { start = at; while (substr(text, at, 1) !~ /[:}]/ && at <= length(text)) at++; key = substr(text, start, at - start) }
      skip(); if (substr(text, at, 1) == ":") at++
      flow(join(path, key))
    }
  }
  if (c == "[") {
    at++; count = 0
    while (1) {
      skip(); c = substr(text, at, 1)
      if (c == "]" || c == "") { at++; return }
      if (c == ",") { at++; continue }
      flow(path "[" count++ "]")
    }
  }
  if (c == "\"" || c == "'") { emit(path, quoted()); return }
  start = at
  while (substr(text, at, 1) !~ /[],}]/ && at <= length(text)) at++
  c = substr(text, start, at - start); sub(/[ \t]+$/, "", c); emit(path, c)
}
function scalar(path, value) {
  if (value ~ /^[[{"']/) { text = value; at = 1; flow(path); return }
  sub(/[ \t]+#.*$/, "", value); emit(path, value)
}
# A block scalar below column `column`: | keeps newlines, > folds them, - drops the last.
function block(path, style, column,   out, width, line, first) {
  out = ""; width = -1; first = 1
  while (current < total) {
    line = lines[current + 1]
    if (line !~ /^[ \t]*$/) {
      match(line, /^ */)
      if (RLENGTH <= column) break
      if (width < 0) width = RLENGTH
    }
    current++
    out = out (first ? "" : style ~ /^>/ ? " " : "\n") substr(line, width + 1); first = 0
  }
  sub(/\n+$/, "", out)
  emit(path, style ~ /-/ ? out : out "\n")
}
function push(column, path, parent) { depth++; columns[depth] = column; paths[depth] = path; counts[depth] = 0; lists[depth] = 0; parents[depth] = parent }
function key_of(content) { return match(content, /^("[^"]*"|'[^']*'|[^][{}"'#: ][^:]*):( |$)/) ? RLENGTH : 0 }
function entry(column, content,   path, rest, key, cut, is_item) {
  is_item = content ~ /^-( |$)/
  while (depth > 1) {
    if (columns[depth] < 0) {
      if (column > parents[depth] || (is_item && column == parents[depth])) { columns[depth] = column; lists[depth] = is_item; break }
    } else if (column >= columns[depth] && !(column == columns[depth] && lists[depth] && !is_item)) break
    depth--
  }
  if (is_item) {
    path = paths[depth] "[" counts[depth]++ "]"
    rest = substr(content, 2); match(rest, /^ */); cut = RLENGTH; rest = substr(rest, cut + 1)
    if (rest == "") { push(-1, path, column); return }
    if (rest ~ /^[|>][-+0-9]*$/) { block(path, rest, column); return }
    if (key_of(rest) || rest ~ /^- /) { push(column + 1 + cut, path, column); lists[depth] = rest ~ /^- /; entry(column + 1 + cut, rest); return }
    scalar(path, rest); return
  }
  cut = key_of(content)
  if (!cut) { if (content ~ /^[[{]/) scalar(paths[depth], content); return }
  key = substr(content, 1, cut); sub(/: *$/, "", key); gsub(/^["']|["']$/, "", key)
  rest = substr(content, cut + 1); sub(/^ +/, "", rest)
  path = join(paths[depth], key)
  if (rest == "" || rest ~ /^#/) push(-1, path, column)
  else if (rest ~ /^[|>][-+0-9]*$/) block(path, rest, column)
  else scalar(path, rest)
}
{ sub(/\r$/, ""); lines[++total] = $0 }
END {
  depth = 0; push(0, "", -1)
  for (current = 1; current <= total; current++) {
    line = lines[current]
    if (line ~ /^[ \t]*(#.*)?$/ || line ~ /^(---|\.\.\.)/) continue
    match(line, /^ */); column = RLENGTH
    content = substr(line, column + 1); sub(/[ \t]+$/, "", content)
    entry(column, content)
  }
}
