package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats t as Python's strftime does in the C locale, glibc's flags
// - _ 0 ^ included.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		c := format[i]
		if c != '%' || i+1 == len(format) {
			b.WriteByte(c)
			continue
		}
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^#", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		if err := strftimeField(&b, t, format[i], flag); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// strftimeField writes one conversion.
func strftimeField(b *strings.Builder, t time.Time, c, flag byte) error {
	num := func(n, width int, pad byte) {
		switch flag {
		case '-':
			width = 0
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		s := strconv.Itoa(n)
		b.WriteString(strings.Repeat(string(pad), max(0, width-len(s))))
		b.WriteString(s)
	}
	text := func(s string) {
		if flag == '^' {
			s = strings.ToUpper(s)
		}
		b.WriteString(s)
	}
	hour12 := (t.Hour()+11)%12 + 1
	weekday := int(t.Weekday())
	isoYear, isoWeek := t.ISOWeek()
	switch c {
	case 'a':
		text(t.Format("Mon"))
	case 'A':
		text(t.Format("Monday"))
	case 'b', 'h':
		text(t.Format("Jan"))
	case 'B':
		text(t.Format("January"))
	case 'c':
		text(t.Format("Mon Jan _2 15:04:05 2006"))
	case 'C':
		num(t.Year()/100, 2, '0')
	case 'd':
		num(t.Day(), 2, '0')
	case 'D', 'x':
		text(t.Format("01/02/06"))
	case 'e':
		num(t.Day(), 2, ' ')
	case 'f':
		fmt.Fprintf(b, "%06d", t.Nanosecond()/1000)
	case 'F':
		text(t.Format("2006-01-02"))
	case 'g':
		num(isoYear%100, 2, '0')
	case 'G':
		num(isoYear, 1, '0')
	case 'H':
		num(t.Hour(), 2, '0')
	case 'I':
		num(hour12, 2, '0')
	case 'j':
		num(t.YearDay(), 3, '0')
	case 'k':
		num(t.Hour(), 2, ' ')
	case 'l':
		num(hour12, 2, ' ')
	case 'm':
		num(int(t.Month()), 2, '0')
	case 'M':
		num(t.Minute(), 2, '0')
	case 'n':
		b.WriteByte('\n')
	case 'p':
		text(t.Format("PM"))
	case 'P':
		text(t.Format("pm"))
	case 'r':
		text(t.Format("03:04:05 PM"))
	case 'R':
		text(t.Format("15:04"))
	case 's':
		b.WriteString(strconv.FormatInt(t.Unix(), 10))
	case 'S':
		num(t.Second(), 2, '0')
	case 't':
		b.WriteByte('\t')
	case 'T', 'X':
		text(t.Format("15:04:05"))
	case 'u':
		num((weekday+6)%7+1, 1, '0')
	case 'U':
		num((t.YearDay()+6-weekday)/7, 2, '0')
	case 'V':
		num(isoWeek, 2, '0')
	case 'w':
		num(weekday, 1, '0')
	case 'W':
		num((t.YearDay()+6-(weekday+6)%7)/7, 2, '0')
	case 'y':
		num(t.Year()%100, 2, '0')
	case 'Y':
		num(t.Year(), 1, '0')
	case 'z', 'Z':
		// datetime.now() knows no time zone.
	case '%':
		b.WriteByte('%')
	default:
		return fault(CauseUnsupported, "strftime conversion %%%c", c)
	}
	return nil
}
