# SPDX-License-Identifier: Apache-2.0
# What contrib/quickstart and contrib/check share: messages, steps with a log and a time limit,
# missing packages, the build. Sourced by sh; not a program. Before the first step set
#	me	name of the program, for messages
#	top	root of the source tree
#	logs	directory of the logs
#	configure_args	(may be unset) options for a first configure
# Every function ends within a time limit or is a message.

say()
{
	printf '%s\n' "$*"
}

# die TEXT...: each argument is a line.
die()
{
	{
		printf '%s: ' "$me"
		printf '%s\n' "$@"
	} >&2
	exit 1
}

child=		# of bounded, while it runs

# bounded SECONDS COMMAND...: runs a program (not a function) with a time limit, in the background, so
# that an interrupt is acted on at once. Its output goes to the file $output, if that is set. Its
# status; 124 or 137 when time was up.
output=
bounded()
{
	_limit=$1
	shift
	if [ -n "$output" ]; then
		timeout -k 10 "$_limit" "$@" </dev/null >"$output" 2>&1 &
	else
		timeout -k 10 "$_limit" "$@" </dev/null &
	fi
	child=$!
	wait "$child"
	_rc=$?
	child=
	return "$_rc"
}

# interrupted: for traps.
interrupted()
{
	trap '' INT TERM HUP
	[ -z "$child" ] || kill -TERM "$child" 2>/dev/null
	die "interrupted$*"
}

# step NAME SECONDS REMEDY COMMAND...: runs a program (not a function) with its output in a log;
# 1 after a message that names the step, shows the end of the log and says what to do.
step()
{
	_name=$1
	_seconds=$2
	_remedy=$3
	shift 3
	_log=$logs/$(printf '%s' "$_name" | tr -c 'a-z0-9\n' -).log
	_began=$(date +%s)
	printf '==> %s ... ' "$_name"
	output=$_log
	bounded "$_seconds" "$@"
	_rc=$?
	output=
	if [ "$_rc" = 0 ]; then
		say "done ($(($(date +%s) - _began)) s)"
		return 0
	fi
	say failed
	{
		case $_rc in
		124|137) say "$me: $_name: not done after $_seconds s" ;;
		*) say "$me: $_name: $1 ended with status $_rc" ;;
		esac
		say "The end of $_log:"
		tail -n 20 "$_log" | sed 's/^/    /'
		say "What to do: $_remedy"
	} >&2
	return 1
}

# packages_of GROUP...: the names of these groups.
packages_of()
{
	for _group in "$@"; do
		awk -v group="$_group" '$1 == group { print $2 }' "$top/contrib/packages"
	done
}

# packages_missing PACKAGE...
packages_missing()
{
	for _package in "$@"; do
		dpkg-query -W -f='${Status}\n' "$_package" 2>/dev/null | grep -q '^install ok installed' ||
			printf '%s ' "$_package"
	done
}

# root_prefix: prints what makes a command run as root: nothing, or sudo; 1 if neither will do.
root_prefix()
{
	[ "$(id -u)" = 0 ] && return 0
	command -v sudo >/dev/null 2>&1 || return 1
	sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; } || return 1
	echo "sudo -n"
}

# packages_install GROUP...: installs what is missing of these groups.
packages_install()
{
	_names=$(packages_of "$@")
	{ command -v dpkg-query && command -v apt-get; } >/dev/null 2>&1 || {
		say "==> this is neither Debian nor Ubuntu: installing nothing. What is needed has there the names"
		# shellcheck disable=SC2086
		say "   " $_names
		return 0
	}
	_missing=$(packages_missing $_names)
	[ -n "$_missing" ] || return 0
	_root=$(root_prefix) || die "these packages are missing: $_missing" \
		"This user is not root and cannot use sudo. As root: apt-get update && apt-get install $_missing"
	say "==> to be installed: $_missing"
	step "reading the package lists" 300 \
		"look at the network and at /etc/apt/sources.list*; then run this again" \
		$_root apt-get -q -o DPkg::Lock::Timeout=120 update || exit 1
	step "installing packages" 900 \
		"try it by hand: apt-get install $_missing" \
		$_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends \
		-o DPkg::Lock::Timeout=120 install $_missing || exit 1
}

# make_jobs: as many as there are CPUs, but one for each GiB of memory at most.
make_jobs()
{
	awk -v cpus="$(nproc)" '/^MemAvailable:/ { gib = int($2 / 1048576) }
		END { n = gib < cpus ? gib : cpus; print n < 1 ? 1 : n }' /proc/meminfo
}

# build_tree: bootstrap, configure and make, in build/ or, where the source tree itself is configured,
# there. Does only what is not up to date. Sets build.
build_tree()
{
	build=$top/build
	if [ -e "$top/config.status" ]; then
		build=$top
	fi
	mkdir -p "$build" || die "$build: cannot be made; is the source tree writable?"
	if [ ! -e "$top/configure" ] || [ "$top/configure.ac" -nt "$top/configure" ]; then
		step bootstrap 300 "see README.md, Build" "$top/bootstrap" || exit 1
	fi
	if [ ! -e "$build/config.status" ]; then
		(cd "$build" && step configure 300 "install what it names; the whole story is in $build/config.log" \
			../configure ${configure_args:-}) || exit 1
	fi
	step build 1800 "see the first error in the log; after a change of compilers: rm -r $build" \
		make -C "$build" -j "$(make_jobs)" || exit 1
}
