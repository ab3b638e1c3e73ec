{{/* Rights on what lies in namespaces: in those that are followed. */}}
{{- define "redlock-operator.namespacedRules" -}}
# The operator follows locks, and patches one for its finalizer and to answer a hand-over.
- apiGroups: [redlock.dev]
  resources: [leaderlocks]
  verbs: [get, list, watch, patch]
- apiGroups: [redlock.dev]
  resources: [leaderlocks/status]
  verbs: [patch]
# An owner reference that blocks deletion needs it where OwnerReferencesPermissionEnforcement is enabled.
- apiGroups: [redlock.dev]
  resources: [leaderlocks/finalizers]
  verbs: [update]
{{ include "redlock-operator.eventRules" . }}
{{- $podsGo := false -}}
{{- range include "redlock-operator.targetKinds" . | fromYamlArray }}
{{- if and (not .group) (eq .resource "pods") }}
# The operator follows the pods of a selector, and labels one of them.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, patch]
{{- else if and (eq .group "coordination.k8s.io") (eq .resource "leases") }}
# The operator follows the Leases of leader elections, and holds those of its targets where their lock is not held. It reads
# the pod of the former leader, which may still terminate.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- else }}
{{- $podsGo = true }}
{{- if and (eq .group "batch") (has .resource (list "cronjobs" "jobs")) }}
# The operator follows and suspends targets of this kind. Before it resumes a CronJob it records in its status that no
# run was missed, and it deletes unfinished Jobs of the CronJob.
{{- if eq .resource "cronjobs" }}
- apiGroups: [batch]
  resources: [cronjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [batch]
  resources: [cronjobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [list, watch, patch, delete]
{{- else }}
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, patch]
{{- end }}
# The operator removes a condition Suspended that is older than the last start before it suspends a Job again.
- apiGroups: [batch]
  resources: [jobs/status]
  verbs: [patch]
{{- else }}
# The operator follows targets of this kind, scales them by their scale subresource, and deletes the remaining pods at
# the end.
- apiGroups: [{{ .group | default "" | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, list, watch]
- apiGroups: [{{ .group | default "" | quote }}]
  resources: [{{ .resource }}/scale]
  verbs: [get, patch]
{{- end }}
{{- end }}
{{- end }}
{{- $patched := list }}
{{- range .Values.targetFields }}
{{- $group := .group | default "" }}
{{- $of := printf "%s/%s" $group .resource }}
{{- if not (has $of $patched) }}
{{- $patched = append $patched $of }}
# The operator follows targets of this kind, and sets the fields of targetFields.
- apiGroups: [{{ $group | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, list, watch, patch]
{{- end }}
{{- end }}
{{- if $podsGo }}
# A target is stopped when its pods are gone. The pods of locks with `fencing: Node` are followed from their creation.
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch, delete]
{{- end }}
{{- end -}}

{{- define "redlock-operator.eventRules" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Rights on what belongs to no namespace. */}}
{{- define "redlock-operator.clusterRules" -}}
# The operator follows them, and patches the finalizer of those that locks name. Commands that run in a pod of the
# operator, such as `redlock doctor`, read one.
- apiGroups: [redlock.dev]
  resources: [redisquorums]
  verbs: [get, list, watch, patch]
- apiGroups: [redlock.dev]
  resources: [redisquorums/status]
  verbs: [patch]
# Its UID distinguishes this cluster from every other.
- apiGroups: [""]
  resources: [namespaces]
  resourceNames: [kube-system]
  verbs: [get]
{{- if .Values.metrics.requireToken }}
# For the user of a bearer token, and whether that user may get /metrics or /locks.
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* A Role and its RoleBinding to the operator: (dict "top" $ "name" … "namespace" … "rules" …) */}}
{{- define "redlock-operator.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
rules:
{{ .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "redlock-operator.serviceAccountName" .top }}
  namespace: {{ .top.Release.Namespace }}
{{- end -}}

{{/* A binding of the hook: (dict "top" $ "kind" … "name" … "namespace" … "annotations" …) */}}
{{- define "redlock-operator.drainBinding" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "redlock-operator.labels" .top | nindent 4 }}
  annotations:
    {{- toYaml .annotations | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ include "redlock-operator.fullname" .top }}-drain
  namespace: {{ .top.Release.Namespace }}
{{- end -}}
