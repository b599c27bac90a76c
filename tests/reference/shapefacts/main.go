// shapefacts prints what Go makes of the JSON of Kubernetes' built-in kinds: which fields are always written, which are
// left out when they are empty, and which are pointers, so that an empty value is kept. The API server settles objects
// into that form with the table that this program makes (from tests/reference):
//
//	go run ./shapefacts > ../../crates/apiserver/src/strategy/shape/fields.txt
//
// The format is described in crates/apiserver/src/strategy/shape/facts.rs.
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// Types whose JSON form does not follow from their fields.
var special = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):                                  "time",
	reflect.TypeOf(metav1.MicroTime{}):                             "microtime",
	reflect.TypeOf(metav1.Duration{}):                              "any",
	reflect.TypeOf(metav1.FieldsV1{}):                              "any",
	reflect.TypeOf(resource.Quantity{}):                            "quantity",
	reflect.TypeOf(intstr.IntOrString{}):                           "intorstring",
	reflect.TypeOf(runtime.RawExtension{}):                         "any",
	reflect.TypeOf(apiextensionsv1.JSON{}):                         "any",
	reflect.TypeOf(apiextensionsv1.JSONSchemaProps{}):              "any",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrBool{}):        "any",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrArray{}):       "any",
	reflect.TypeOf(apiextensionsv1.JSONSchemaPropsOrStringArray{}): "any",
}

func main() {
	scheme := runtime.NewScheme()
	must(clientscheme.AddToScheme(scheme))
	must(apiextensionsv1.AddToScheme(scheme))
	must(apiregistrationv1.AddToScheme(scheme))

	kinds := map[string]string{}
	structs := map[string][]string{}
	for gvk, goType := range scheme.AllKnownTypes() {
		unstable := strings.Contains(gvk.Version, "alpha") || strings.Contains(gvk.Version, "beta")
		isMeta := strings.HasSuffix(goType.PkgPath(), "apimachinery/pkg/apis/meta/v1")
		if unstable || isMeta || gvk.Version == runtime.APIVersionInternal || strings.HasSuffix(gvk.Kind, "List") {
			continue
		}
		kinds[gvk.GroupVersion().String()+" "+gvk.Kind] = name(goType)
		collect(goType, structs)
	}
	write(kinds, structs)
}

func collect(t reflect.Type, structs map[string][]string) {
	if _, seen := structs[name(t)]; seen {
		return
	}
	structs[name(t)] = nil
	structs[name(t)] = fields(t, structs)
}

// fields lists the fields of a struct, with those of inlined structs in their place.
func fields(t reflect.Type, structs map[string][]string) (lines []string) {
	for i := 0; i < t.NumField(); i++ {
		field := t.Field(i)
		tag := strings.Split(field.Tag.Get("json"), ",")
		if tag[0] == "-" || field.Type == reflect.TypeOf(metav1.TypeMeta{}) {
			continue
		}
		if tag[0] == "" {
			lines = append(lines, fields(field.Type, structs)...)
			continue
		}
		lines = append(lines, fmt.Sprintf(" %s %s%s", tag[0], mode(field.Type, tag[1:]), typeText(field.Type, structs)))
	}
	return lines
}

// mode says when a field is written: always (no mark), when it is not empty (?), when it is there (*), or always but as
// null when it is not there (!).
func mode(t reflect.Type, options []string) string {
	omit := map[string]bool{}
	for _, option := range options {
		omit[option] = true
	}
	switch {
	case t.Kind() == reflect.Pointer && (omit["omitempty"] || omit["omitzero"]):
		return "*"
	case t.Kind() == reflect.Pointer:
		return "!"
	case omit["omitzero"], omit["omitempty"] && t.Kind() != reflect.Struct:
		return "?"
	}
	return ""
}

func typeText(t reflect.Type, structs map[string][]string) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if text, ok := special[t]; ok {
		return text
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "bool"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "bytes"
		}
		return "[]" + typeText(t.Elem(), structs)
	case reflect.Map:
		return "{}" + typeText(t.Elem(), structs)
	case reflect.Struct:
		collect(t, structs)
		return name(t)
	}
	panic(fmt.Sprintf("no text for %s", t))
}

// name is the short name of a struct: core/v1.Pod, meta/v1.ObjectMeta.
func name(t reflect.Type) string {
	path := strings.Split(t.PkgPath(), "/")
	return path[len(path)-2] + "/" + path[len(path)-1] + "." + t.Name()
}

func write(kinds map[string]string, structs map[string][]string) {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, kind := range sorted(kinds) {
		fmt.Fprintf(out, "kind %s %s\n", kind, kinds[kind])
	}
	for _, name := range sorted(structs) {
		fmt.Fprintln(out, name)
		for _, line := range structs[name] {
			fmt.Fprintln(out, line)
		}
	}
}

func sorted[V any](from map[string]V) []string {
	keys := make([]string, 0, len(from))
	for key := range from {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
